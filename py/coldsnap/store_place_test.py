"""Which store is meant, and where the default one is refused: what passes with the container, and full drives."""

import os
import pathlib
from types import SimpleNamespace

import pytest

from coldsnap import errors, mounts, store_place
from coldsnap.settings import Setting


def on(monkeypatch: pytest.MonkeyPatch, kind: str, root: str = "/") -> None:
    """Have every folder lie on a file system of that kind, mounted from this folder of it."""
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem(kind, None, "/there", root))


def default(path: pathlib.Path) -> Setting:
    return Setting(str(path), "default")


def test_an_argument_wins_over_the_variable_over_the_default() -> None:
    environ = {"COLDSNAP_STORE": "/models/store", "XDG_CACHE_HOME": "/cache", "HOME": "/users/a"}
    assert store_place.chosen("here", environ) == Setting("here", "explicit")
    assert store_place.chosen(None, environ) == Setting("/models/store", "environment")
    del environ["COLDSNAP_STORE"]
    assert store_place.chosen(None, environ) == Setting("/cache/coldsnap", "default")
    assert store_place.chosen(None, environ | {"XDG_CACHE_HOME": "cache"}).value == "/users/a/.cache/coldsnap"


def test_a_relative_variable_is_refused() -> None:
    with pytest.raises(errors.RequestInvalidError, match="read COLDSNAP_STORE: 'store' is no absolute path"):
        store_place.chosen(None, {"COLDSNAP_STORE": "store"})


def test_nobody_knows_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(errors.PolicyRefusedError, match=r"HOME is not set.*name a store: COLDSNAP_STORE=DIR"):
        store_place.chosen(None, {})


@pytest.mark.parametrize("kind", ["overlay", "tmpfs", "fuse.fuse-overlayfs"])
def test_what_passes_with_the_container_is_no_default(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, kind)
    store = tmp_path / "nowhere" / "yet"
    with pytest.raises(errors.PolicyRefusedError, match=f"{tmp_path} is on {kind}, and would be gone") as caught:
        store_place.require_lasting(default(store))
    assert caught.value.remedy == "name a store: COLDSNAP_STORE=DIR"
    store_place.require_lasting(Setting(str(store), "environment"))  # who names it may have it
    assert not store.parent.exists()


def test_an_empty_dir_of_a_pod_is_no_default(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "ext4", "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/cache")
    with pytest.raises(errors.PolicyRefusedError, match="it is in an emptyDir volume, and would be gone"):
        store_place.require_lasting(default(tmp_path))


def test_a_drive_is_a_default(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "ext4", "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~local-volume/models")
    store_place.require_lasting(default(tmp_path))


def test_the_mounted_folder_is_the_kernel_s_word(tmp_path: pathlib.Path) -> None:
    found = store_place._file_system_of(pathlib.Path("/proc"))
    assert (found.type, found.root) == ("proc", "/")


@pytest.mark.parametrize(("free", "fits"), [(1100 + 500, True), (1100 + 499, False)])
def test_a_tenth_more_than_the_blob_and_a_twentieth_of_the_drive(
    free: int, fits: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(f_frsize=1, f_blocks=10_000, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    store_place.require_free(Setting(str(tmp_path), "explicit"), 1000)
    if fits:
        store_place.require_free(default(tmp_path), 1000)
        return
    with pytest.raises(errors.NoSpaceError, match="that needs 1600 bytes, and 1599 are available"):
        store_place.require_free(default(tmp_path), 1000)
