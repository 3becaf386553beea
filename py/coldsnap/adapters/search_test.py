"""Which artifact a start restores from: the current one of its identity, or a reason that names what differs."""

import os
import pathlib
import pwd
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import errors, quarantine
from coldsnap.adapters import configuration, search
from coldsnap.adapters.search import Found, Wanted

IDENTITY = {"checkpoint": "c1", "backend": "X"}
SHARD = "shard-00-00-00"


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "store"


def capture(store: pathlib.Path, identity: dict[str, str] = IDENTITY, value: int = 0, strategy: str = "meta") -> str:
    tensors = {"w": np.full(70000, value, np.uint8)}
    receipt = coldsnap.capture(tensors, store=store, identity=identity, scalars={search.STRATEGY: strategy})
    assert receipt.artifact_root is not None
    return receipt.artifact_root


def different(captured: Any, here: Any) -> list[str]:
    return [f"{name} was {captured.get(name)} and is {here[name]}" for name in here if captured.get(name) != here[name]]


def find(store: pathlib.Path, *, shard: str = SHARD, **ours: str) -> Found:
    chosen = configuration.resolve({"coldsnap": {"store": str(store), **ours}}, {})
    comparable = (lambda found: {"backend": found["backend"]}) if ours.get("identity") == "manifest" else dict
    return search.find(chosen, Wanted(IDENTITY, shard, ("meta", "shape"), different, comparable), os.environ)


def test_the_current_artifact_of_the_identity(store: pathlib.Path) -> None:
    root = capture(store)
    found = find(store)
    assert found.artifact is not None and found.artifact.artifact_root == root and found.code == ""
    found.artifact.close()


def test_none_yet(store: pathlib.Path) -> None:
    found = find(store)
    assert (found.artifact, found.code) == (None, "no_artifact")
    assert found.why == f"there is no artifact of this model in {store} yet"
    capture(store, {"checkpoint": "c2", "backend": "X"})  # of another model
    assert find(store) == found


def test_the_nearest_one_says_what_differs(store: pathlib.Path) -> None:
    capture(store, {"checkpoint": "c1", "backend": "Y"})
    found = find(store)
    assert (found.artifact, found.code) == (None, "no_artifact")
    assert found.why == f"the artifact in {store} is of another start: backend was Y and is X"


def test_a_named_artifact_is_compared(store: pathlib.Path, tmp_path: pathlib.Path) -> None:
    root = capture(store, {"checkpoint": "c2", "backend": "X"})
    (path,) = store.glob(f"*/{root}")
    found = find(store, artifact=str(path))
    assert (found.artifact, found.code) == (None, "identity_differs")
    assert found.why == f"artifact {root[:12]} is of another start: checkpoint was c2 and is c1"
    found = find(store, artifact=str(path), identity="manifest")
    assert found.artifact is not None
    found.artifact.close()
    assert find(store, artifact=str(tmp_path / "nowhere")).code == "request_invalid"


def test_without_a_checkpoint_the_only_fitting_one(store: pathlib.Path) -> None:
    capture(store, {"checkpoint": "c2", "backend": "X"})
    capture(store, {"checkpoint": "c3", "backend": "Y"})
    found = find(store, identity="manifest")
    assert found.artifact is not None and found.artifact.identity["checkpoint"] == "c2"
    found.artifact.close()
    capture(store, {"checkpoint": "c4", "backend": "X"})
    assert find(store, identity="manifest").code == "ambiguous"


def test_under_quarantine(store: pathlib.Path) -> None:
    root = capture(store)
    quarantine.write(root, errors.DataLossError("extent 0 (w): piece 1"), "restore", os.environ)
    found = find(store)
    assert (found.artifact, found.code) == (None, "quarantined")
    assert found.quarantined is not None and found.quarantined.code == "data_loss"
    assert "extent 0 (w): piece 1" in found.why and f"unquarantine {root}" in found.why


def test_a_strategy_that_this_engine_has_not(store: pathlib.Path) -> None:
    capture(store, strategy="loaded")
    found = find(store)
    assert (found.artifact, found.code) == (None, "strategy_unknown")
    assert "'loaded'" in found.why


def test_a_truncated_blob_is_remembered(store: pathlib.Path) -> None:
    root = capture(store)
    (blob,) = store.glob(f"*/{root}/*/weights.safetensors")
    blob.chmod(0o644)
    os.truncate(blob, 70000)
    found = find(store)
    assert (found.artifact, found.code) == (None, "data_loss")
    assert quarantine.find(root, os.environ) is not None


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json", "leaves.bin", "artifact.json"])
def test_a_missing_file_is_refused_each_time_and_not_remembered(store: pathlib.Path, name: str) -> None:
    root = capture(store)
    (file,) = store.glob(f"*/{root}/**/{name}")
    away = file.with_suffix(".away")
    file.rename(away)
    for _ in range(2):
        found = find(store)
        assert (found.artifact, found.code) == (None, "format_invalid")
        assert name in found.why
    assert quarantine.every(os.environ) == []
    away.rename(file)  # a copy that was under way, or a share that came back
    found = find(store)
    assert found.artifact is not None
    found.artifact.close()


def test_once_a_damaged_artifact_is_removed_the_next_start_captures(store: pathlib.Path) -> None:
    root = capture(store)
    (blob,) = store.glob(f"*/{root}/*/weights.safetensors")
    blob.unlink()
    assert find(store).code == "format_invalid"
    coldsnap.Store(store).remove(root)
    assert find(store).code == "no_artifact"  # for which a start captures
    assert capture(store) == root
    found = find(store)
    assert found.artifact is not None
    found.artifact.close()


def test_a_shard_that_is_not_there(store: pathlib.Path) -> None:
    capture(store)
    found = find(store, shard="shard-00-01-00")
    assert (found.artifact, found.code) == (None, "request_invalid")


def flip_a_bit(store: pathlib.Path, root: str) -> None:
    (blob,) = store.glob(f"*/{root}/*/weights.safetensors")
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)  # in the padding or the data, both of which are verified
        byte = file.read(1)[0]
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def test_what_could_not_be_remembered_is_verified_first(store: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = capture(store)
    flip_a_bit(store, root)
    found = find(store)  # a restore will find out, and write it down
    assert found.artifact is not None
    found.artifact.close()
    monkeypatch.setenv("COLDSNAP_STATE_DIR", "/proc/nothing/can/be/made/here")
    found = find(store)
    assert (found.artifact, found.code) == (None, "data_loss")
    found = find(store, mode="restore")  # fails at the restore, as it was asked to
    assert found.artifact is not None
    found.artifact.close()


def test_where_nobody_has_a_home_folder_nothing_is_under_quarantine(
    store: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = capture(store)

    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("COLDSNAP_STATE_DIR", "HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = find(store, mode="restore")
    assert found.artifact is not None
    found.artifact.close()
    flip_a_bit(store, root)
    assert find(store).code == "data_loss"  # verified first, since nobody could remember it
