"""Captures that read the durable file again before they publish, and what that allows."""

from __future__ import annotations

import errno
import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import mounts
from tests.api.helpers import file_of
from tests.capture import helpers
from tests.capture.helpers import Fault, fails


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path_factory.mktemp("state") / "coldsnap"))


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_it_is_admitted(backend: str, tmp_path: pathlib.Path) -> None:
    tensors = helpers.model()
    receipt = coldsnap.capture(tensors, tmp_path / "artifact", backend=backend, preverified=True)
    assert receipt.settings["verify_mode"] == {"value": "preverified", "source": "explicit"}
    assert receipt.stages_s["reread"] > 0
    assert "admitted" in helpers.codes(receipt)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        found = helpers.destinations(artifact)
        restored = coldsnap.hydrate(artifact, found, backend="buffered", verify="none")
    assert restored.verify["mode"] == "none"
    helpers.assert_same_bits(found, tensors)


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_without_it_nothing_is_admitted(backend: str, tmp_path: pathlib.Path) -> None:
    receipt = coldsnap.capture(helpers.model(), tmp_path / "artifact", backend=backend)
    assert "admitted" not in helpers.codes(receipt)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        found = helpers.destinations(artifact)
        with pytest.raises(coldsnap.NotAdmittedError):
            coldsnap.hydrate(artifact, found, backend="buffered", verify="none")


def test_the_environment_asks_for_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_HIBERNATE_VERIFY_MODE", "preverified")
    receipt = coldsnap.capture(helpers.model(), store=tmp_path, identity={})
    assert receipt.settings["verify_mode"] == {"value": "preverified", "source": "environment"}
    assert "admitted" in helpers.codes(receipt)


def test_a_trust_folder_that_others_may_write_to_is_refused_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trust"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("COLDSNAP_TRUST_DIR", str(folder))
    with pytest.raises(coldsnap.PolicyRefusedError, match="others may write"):
        coldsnap.capture(helpers.model(), tmp_path / "artifact", preverified=True)
    assert helpers.names_in(tmp_path) == ["trust"]


def test_a_pin_on_others_leaves_it_without_a_marker(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", "0" * 64)
    receipt = coldsnap.capture(helpers.model(), tmp_path / "artifact", preverified=True)
    assert receipt.ok
    [detail] = [reason["detail"] for reason in receipt.reasons if reason["code"] == "not_admitted"]
    assert "COLDSNAP_TRUST_MANIFEST" in detail


def test_a_marker_that_can_not_be_written_is_no_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        fault = Fault(
            patched, "rename", fails(errno.ENOSPC)
        )  # the marker's own; a path's artifact is moved by the core
        receipt = coldsnap.capture(helpers.model(), tmp_path / "artifact", preverified=True)
    assert fault.fired
    assert receipt.ok
    assert "not_admitted" in helpers.codes(receipt)
    with coldsnap.open(tmp_path / "artifact") as artifact, pytest.raises(coldsnap.NotAdmittedError):
        coldsnap.hydrate(artifact, helpers.destinations(artifact), backend="buffered", verify="none")


# The header is one read (or its trial and one), then 4 MiB of the large extent at a time.
@pytest.mark.parametrize(("nth", "what"), [(2, "the header"), (3, r"capture extent 0 \(large\)"), (6, r"\(small\)")])
def test_a_drive_that_gives_back_other_bytes(
    nth: int, what: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_bytes(real: Any, fd: int, buffers: list[memoryview], offset: int) -> int:
        got = real(fd, buffers, offset)
        buffers[0][600] ^= 4
        return got

    tensors = {"large": helpers.random_bytes(9 << 20), "small": helpers.random_bytes(1000, 2)}
    with monkeypatch.context() as patched:
        fault = Fault(patched, "preadv", other_bytes, nth)
        with pytest.raises(coldsnap.DataLossError, match=f"{what}.*came back from the drive"):
            coldsnap.capture(tensors, tmp_path / "artifact", backend="python", preverified=True)
    assert fault.fired
    assert helpers.names_in(tmp_path) == []


def test_a_read_that_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        fault = Fault(patched, "preadv", fails(errno.EIO), 3)
        with pytest.raises(coldsnap.IoError, match=r"weights.safetensors again"):
            coldsnap.capture(helpers.model(), tmp_path / "artifact", backend="python", preverified=True)
    assert fault.fired
    assert helpers.names_in(tmp_path) == []


def test_without_direct_reads_the_page_cache_has_to_be_empty(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def refuses_direct(real: Any, path: Any, flags: int, *more: Any, **others: Any) -> int:
        if flags & os.O_DIRECT:
            opened.append(path)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return int(real(path, flags, *more, **others))

    real = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda *arguments, **more: refuses_direct(real, *arguments, **more))
        receipt = coldsnap.capture(helpers.model(), tmp_path / "dropped", backend="python", preverified=True)
        assert len(opened) == 1
        assert "admitted" in helpers.codes(receipt)

        kept = []
        patched.setattr(os, "posix_fadvise", lambda *arguments: kept.append(arguments))  # and the pages stay
        with pytest.raises(coldsnap.RouteUnavailableError, match=r"of its \d+ bytes stay there"):
            coldsnap.capture(helpers.model(), tmp_path / "kept", backend="python", preverified=True)
    assert len(kept) == 1
    assert helpers.names_in(tmp_path) == [name for name in helpers.names_in(tmp_path) if name.startswith("dropped")]


@pytest.mark.parametrize("backend", ["python", "buffered", "auto"])
def test_where_there_is_no_drive_it_is_refused(backend: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = pathlib.Path(folder)
        fd = os.open(path, os.O_RDONLY)
        system = mounts.of_descriptor(fd).type
        os.close(fd)
        if system != "tmpfs":
            pytest.skip(f"/dev/shm is {system}, not tmpfs")
        with pytest.raises(coldsnap.RouteUnavailableError, match="past the page cache") as caught:
            coldsnap.capture(helpers.model(), path / "artifact", backend=backend, preverified=True)
        assert caught.value.remedy
        assert helpers.names_in(path) == []
        assert coldsnap.capture(helpers.model(), path / "artifact", backend=backend).ok


def test_a_file_that_is_shorter_by_then(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        fault = Fault(patched, "preadv", lambda *_: 0, 3)
        with pytest.raises(coldsnap.DataLossError, match="the file ends after 0"):
            coldsnap.capture({"w": np.ones(100_000)}, tmp_path / "artifact", backend="python", preverified=True)
    assert fault.fired
    assert not file_of(tmp_path / "artifact", "artifact.json").exists()
