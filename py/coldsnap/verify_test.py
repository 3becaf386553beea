"""`coldsnap.verify`: its receipt, all shards, what is admitted and what loses its marker, and stopping.

Damage, byte by byte, is in tests/api/verify_test.py.
"""

import errno
import hashlib
import json
import os
import pathlib
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, errors, state, tensors, trust

SHARD = "shard-00-00-00"
SIZES = {"a": 9_000_000, "b": 1 << 22, "c": 65536, "d": 65537, "e": 70_000, "f": 65535, "g": 1, "h": 511, "i": 60_000}


def random_weights(sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.integers(0, 256, nbytes, np.uint8) for name, nbytes in sizes.items()}


def write(path: pathlib.Path, weights: dict[str, np.ndarray]) -> pathlib.Path:
    _native.write_artifact(str(path), tensors.native_specs(weights), "{}", "{}", "{}")
    return path


@pytest.fixture(autouse=True)
def trust_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for variable in ("COLDSNAP_TRUST_DIR", "COLDSNAP_TRUST_MANIFEST", "COLDSNAP_TRUST_GROUP"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "trust"


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "artifact", random_weights(SIZES))


def markers(trust_dir: pathlib.Path) -> list[str]:
    return sorted(marker.stem for marker in trust_dir.glob("*")) if trust_dir.exists() else []


def flip(path: pathlib.Path, offset: int) -> None:
    """Change a byte and leave the modification time as it was, as a failing drive does."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def with_two_shards(path: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Put a second shard into the artifact, as a capture of two ranks has it (docs/format.md, "artifact.json")."""
    other = write(tmp_path / "other", random_weights({"w": 100_000, "x": 5}, 2))
    document, second = (json.loads((folder / "artifact.json").read_text()) for folder in (path, other))
    second["shards"][0]["name"] = "shard-00-01-00"
    shutil.move(other / SHARD, path / "shard-00-01-00")
    document["shards"] += second["shards"]
    roots = [[shard["name"], shard["shard_root"]] for shard in document["shards"]]
    identity = hashlib.sha256(canonical(document["identity"])).hexdigest()
    root = canonical({"format": 1, "identity": identity, "shards": roots})
    document["artifact_root"] = hashlib.sha256(root).hexdigest()
    (path / "artifact.json").chmod(0o644)
    (path / "artifact.json").write_bytes(canonical(document))
    return path


def test_an_intact_artifact_passes(path: pathlib.Path, trust_dir: pathlib.Path) -> None:
    calls: list[tuple[int, int]] = []
    receipt = coldsnap.verify(path, progress=lambda done, total: calls.append((done, total)))
    with coldsnap.open(path) as artifact:
        total = artifact.blob_bytes
        assert receipt.artifact_root == artifact.artifact_root
    payload = sum(SIZES.values())
    assert (receipt.ok, receipt.operation, receipt.provider, receipt.error) == (True, "verify", "python", None)
    assert receipt.payload_bytes == payload
    assert receipt.routes == [{"route": "python", "bytes": payload, "extents": 9}]
    assert receipt.verify == {"mode": "crc32+sha256", "place": "host"}
    assert receipt.stages_s["read"] > 0
    assert receipt.stages_s["digest"] > 0
    assert (calls[0], calls[-1]) == ((0, total), (total, total))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert receipt.reasons == []
    assert markers(trust_dir) == []


def test_every_shard_is_verified(path: pathlib.Path, tmp_path: pathlib.Path, trust_dir: pathlib.Path) -> None:
    with_two_shards(path, tmp_path)
    receipt = coldsnap.verify(path, admit=True)
    with (
        coldsnap.open(path, shard=SHARD) as first,
        coldsnap.open(path, shard="shard-00-01-00") as second,
    ):
        assert receipt.payload_bytes == first.payload_bytes + second.payload_bytes
        digests = [first.native.manifest_sha256, second.native.manifest_sha256]
        assert all(trust.check(shard, os.environ).admitted for shard in (first, second))
    assert receipt.reasons == [
        {"code": "admitted", "detail": f"{SHARD} {digests[0]}"},
        {"code": "admitted", "detail": f"shard-00-01-00 {digests[1]}"},
    ]
    assert markers(trust_dir) == sorted(digests)


def test_no_shard_is_admitted_unless_all_pass(
    path: pathlib.Path, tmp_path: pathlib.Path, trust_dir: pathlib.Path
) -> None:
    with_two_shards(path, tmp_path)
    flip(path / "shard-00-01-00" / "weights.safetensors", 65536)
    with pytest.raises(errors.DataLossError, match=r"verify shard-00-01-00: extent 0 \(w\): piece 0"):
        coldsnap.verify(path, admit=True)
    assert markers(trust_dir) == []


def test_an_artifact_that_is_replaced_meanwhile_is_not_mixed(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_two_shards(path, tmp_path)
    other = write(tmp_path / "third", random_weights({"w": 5}, 3))
    module = sys.modules["coldsnap.verify"]

    def open_one_of_two(where: pathlib.Path, shard: str) -> coldsnap.Artifact:
        return coldsnap.open(where, shard=shard) if shard != SHARD else coldsnap.open(other)

    monkeypatch.setattr(module, "open_artifact", open_one_of_two)
    with pytest.raises(errors.DataLossError, match="another artifact took its place meanwhile"):
        coldsnap.verify(path)


def test_an_opened_artifact_stands_for_its_shard(
    path: pathlib.Path, tmp_path: pathlib.Path, trust_dir: pathlib.Path
) -> None:
    with_two_shards(path, tmp_path)
    with coldsnap.open(path, shard="shard-00-01-00") as artifact:
        receipt = coldsnap.verify(artifact, admit=True)
        assert receipt.payload_bytes == 100_005
        assert markers(trust_dir) == [artifact.native.manifest_sha256]
        assert len(artifact) == 2  # and is open still


def test_damage_takes_the_marker_away(path: pathlib.Path, trust_dir: pathlib.Path) -> None:
    """A drive that loses bytes leaves the time stamps alone, so the marker would still fit."""
    coldsnap.verify(path, admit=True)
    with coldsnap.open(path) as artifact:
        digest, artifact_root = artifact.native.manifest_sha256, artifact.artifact_root
        assert markers(trust_dir) == [digest]
        artifact._extents[4] = artifact._extents[4]._replace(crc32="00000000")
        with pytest.raises(errors.DataLossError) as caught:
            coldsnap.verify(artifact)
    assert markers(trust_dir) == []
    assert caught.value.receipt is not None
    assert caught.value.receipt.reasons == [
        {"code": "quarantined", "detail": artifact_root},
        {"code": "marker_removed", "detail": f"{SHARD} {digest}"},
    ]


def test_a_marker_that_cannot_be_removed_is_said(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    coldsnap.verify(path, admit=True)
    with coldsnap.open(path) as artifact:
        artifact._extents[4] = artifact._extents[4]._replace(crc32="00000000")
        monkeypatch.setattr(os, "unlink", fail)
        with pytest.raises(errors.DataLossError, match=r"remove its trust marker, .*json .*: Read-only file system"):
            coldsnap.verify(artifact)


def test_what_changes_while_it_is_read_is_not_admitted(path: pathlib.Path, trust_dir: pathlib.Path) -> None:
    def touch(done: int, total: int) -> None:
        os.utime(path / SHARD / "weights.safetensors")

    with pytest.raises(errors.NotAdmittedError, match="its blob changed while it was read: mtime_ns is"):
        coldsnap.verify(path, admit=True, progress=touch)
    assert markers(trust_dir) == []
    assert coldsnap.verify(path, progress=touch).ok


def test_what_cannot_be_admitted_is_not_read(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(done: int, total: int) -> None:
        pytest.fail("bytes were read")

    (path / SHARD).chmod(0o777)
    with pytest.raises(errors.NotAdmittedError, match=f"anybody may write to its {SHARD}"):
        coldsnap.verify(path, admit=True, progress=never)
    (path / SHARD).chmod(0o755)
    monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", "0" * 64)
    with pytest.raises(errors.PolicyRefusedError, match=r"allows only 0{64}"):
        coldsnap.verify(path, admit=True, progress=never)
    assert coldsnap.verify(path).ok


def test_the_blob_is_durable_before_it_is_admitted(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), fsync(fd)))
    coldsnap.verify(path, admit=True)
    assert synced[0] == (path / SHARD / "weights.safetensors").stat().st_ino
    assert coldsnap.verify(path).ok

    def fail(number: int) -> Callable[[int], None]:
        def fsync(fd: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(errors.IoError, match=f"sync the blob of {SHARD}: Input/output error"):
        coldsnap.verify(path, admit=True)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EROFS])
def test_a_file_system_that_is_never_written_has_nothing_to_sync(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, trust_dir: pathlib.Path, number: int
) -> None:
    fsync = os.fsync
    blob = (path / SHARD / "weights.safetensors").stat().st_ino

    def fail(fd: int) -> None:
        if os.fstat(fd).st_ino == blob:
            raise OSError(number, os.strerror(number))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", fail)
    assert coldsnap.verify(path, admit=True).ok
    assert len(markers(trust_dir)) == 1


def test_cancelled_at_any_moment(path: pathlib.Path, trust_dir: pathlib.Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(errors.Cancelled, match="before the first"):
        coldsnap.verify(path, cancel=cancel)
    cancel.clear()
    with pytest.raises(errors.Cancelled, match=r"verify \d+ bytes: cancelled before the first") as caught:
        coldsnap.verify(path, admit=True, cancel=cancel, progress=lambda done, total: cancel.set())
    assert caught.value.receipt is not None
    assert caught.value.receipt.error is not None
    assert caught.value.receipt.error["code"] == "cancelled"
    cancel.clear()
    with pytest.raises(errors.Cancelled, match=r"verify \d+ bytes: cancelled after \d+ of them"):
        coldsnap.verify(path, admit=True, cancel=cancel, progress=lambda done, total: done and cancel.set())
    assert markers(trust_dir) == []
    assert not any(thread.name.startswith("coldsnap-verify") for thread in threading.enumerate())


def test_an_exception_of_progress_comes_out_as_itself(path: pathlib.Path) -> None:
    def fail(done: int, total: int) -> None:
        if done:
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        coldsnap.verify(path, progress=fail)
    assert caught.value.receipt.error["code"] == "internal"
    assert not any(thread.name.startswith("coldsnap-verify") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"admit": 1}, "verify: admit is a int; give True or False"),
        ({"progress": 1}, "verify: progress is a int; give a function"),
        ({"cancel": 1}, "verify: cancel is a int; give a threading.Event"),
    ],
)
def test_wrong_arguments_are_refused(path: pathlib.Path, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match=what) as caught:
        coldsnap.verify(path, **arguments)
    assert caught.value.receipt is not None


def test_another_trust_folder_may_be_named(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_TRUST_DIR", str(tmp_path / "elsewhere"))
    coldsnap.verify(path, admit=True)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
    assert not state.state_dir(os.environ).exists()
