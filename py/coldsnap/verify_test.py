"""`coldsnap.verify`: every byte of an artifact counts, and only what passed is admitted."""

import contextlib
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
from coldsnap import _native, blob_check, errors, state, tensors, trust
from coldsnap.ticker import Ticker

SHARD = "shard-00-00-00"
WINDOW = blob_check.WINDOW_BYTES
# Extents in the blob's order: large by name, then small. One is cut by windows, one fills a window, some share one.
LARGE = {"a": WINDOW * 2 + 12345, "b": WINDOW, "c": 65536, "d": 65537, "e": 70000}
SMALL = {"f": 65535, "g": 1, "h": 511, "i": 60_000}


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
    return write(tmp_path / "artifact", random_weights({**LARGE, **SMALL}))


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
    payload = sum(LARGE.values()) + sum(SMALL.values())
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


def test_windows_are_the_whole_blob_and_cut_no_small_extent(path: pathlib.Path) -> None:
    with coldsnap.open(path) as artifact:
        check = blob_check.BlobCheck(artifact)
        windows = list(check.windows())
        check.close()
        at = artifact.data_start
        seen = dict.fromkeys(range(len(artifact.extents)), 0)
        for window in windows:
            assert window.begin == at
            at = window.end
            assert window.begin % 65536 == window.end % 65536 == 0
            assert 0 < window.end - window.begin <= WINDOW
            for piece in window.pieces:
                extent = artifact.extent(piece.extent)
                assert piece.begin == seen[piece.extent]
                assert piece.begin % 65536 == 0
                assert piece.offset == extent.file_offset + piece.begin
                seen[piece.extent] += piece.nbytes
        assert at == artifact.blob_bytes
        assert list(seen.values()) == [extent.nbytes for extent in artifact.extents]


@pytest.mark.parametrize(
    "sizes",
    [
        {"none": 0},
        {"one": 1},
        {f"{n:03}": 30_000 for n in range(300)},  # three groups of small extents
        {f"{n:03}": 65536 for n in range(100)},
        {"x": WINDOW - 65536, **{f"{n:03}": 40_000 for n in range(110)}},
    ],
    ids=["none", "one", "small", "pieces", "mixed"],
)
def test_any_layout_passes_and_its_last_bytes_count(tmp_path: pathlib.Path, sizes: dict[str, int]) -> None:
    path = write(tmp_path / "artifact", random_weights(sizes))
    calls: list[tuple[int, int]] = []
    assert coldsnap.verify(path, progress=lambda done, total: calls.append((done, total))).ok
    with coldsnap.open(path) as artifact:
        assert calls[-1] == (artifact.blob_bytes, artifact.blob_bytes)
        test_windows_are_the_whole_blob_and_cut_no_small_extent(path)
        if not artifact.extents:
            return
        extent = artifact.extents[-1]
        flip(path / SHARD / "weights.safetensors", extent.file_offset + extent.nbytes - 1)
    with pytest.raises(errors.DataLossError, match=f"extent {len(sizes) - 1} "):
        coldsnap.verify(path)


@pytest.mark.parametrize(
    ("name", "offset", "what"),
    [
        ("a", 0, r"extent 0 \(a\): piece 0 \(bytes 0 to 65535 of 8400953\) is not what was captured"),
        ("a", WINDOW + 65536, r"extent 0 \(a\): piece 65 \(bytes 4259840 to 4325375 of 8400953\)"),
        ("a", LARGE["a"] - 1, r"extent 0 \(a\): piece 128 \(bytes 8388608 to 8400952 of 8400953\)"),
        ("b", WINDOW - 1, r"extent 1 \(b\): piece 63 "),
        ("d", 65536, r"extent 3 \(d\): piece 1 \(bytes 65536 to 65536 of 65537\)"),
        ("g", 0, r"extent 6 \(g\): piece 0 \(bytes 0 to 0 of 1\)"),
        ("i", 59_999, r"extent 8 \(i\): piece 0 \(bytes 0 to 59999 of 60000\)"),
    ],
)
def test_a_wrong_byte_is_named_by_extent_tensor_and_piece(
    path: pathlib.Path, name: str, offset: int, what: str
) -> None:
    with coldsnap.open(path) as artifact:
        extent = artifact.extent(artifact[name].extent or 0)
    flip(path / SHARD / "weights.safetensors", extent.file_offset + offset)
    with pytest.raises(errors.DataLossError, match=what) as caught:
        coldsnap.verify(path)
    receipt = caught.value.receipt
    assert receipt is not None
    assert not receipt.ok
    assert receipt.error is not None
    assert (receipt.error["code"], receipt.error["stage"]) == ("data_loss", "digest")
    assert "good copy" in receipt.error["remedy"]


@pytest.mark.parametrize("extent", range(9))
def test_padding_is_zero(path: pathlib.Path, extent: int) -> None:
    with coldsnap.open(path) as artifact:
        extents = artifact.extents
        at = extents[extent].file_offset + extents[extent].nbytes
        if at in (*(other.file_offset for other in extents), artifact.blob_bytes):
            return  # it ends where the next one begins
        flip(path / SHARD / "weights.safetensors", at)
    with pytest.raises(
        errors.DataLossError, match=f"byte {at} of weights.safetensors is padding between extents and not 0"
    ):
        coldsnap.verify(path)


class Held(blob_check.BlobCheck):
    """Keeps a thread in the first window until ``go`` is set, and counts the windows that were begun."""

    def __init__(self, artifact: coldsnap.Artifact, go: threading.Event) -> None:
        super().__init__(artifact)
        self.go = go
        self.begun = 0

    def check(self, window: Any, buffer: memoryview) -> None:
        self.begun += 1
        if window.begin == self.artifact.data_start and not self.go.wait(60):
            raise TimeoutError
        super().check(window, buffer)


def test_the_first_finding_in_file_order_is_named(path: pathlib.Path) -> None:
    later_failed = threading.Event()

    class LaterFailsFirst(Held):
        def check(self, window: Any, buffer: memoryview) -> None:
            try:
                super().check(window, buffer)
            except errors.DataLossError:
                later_failed.set()
                raise

    with coldsnap.open(path) as artifact:
        first = artifact.data_start
        for offset in (first, first + WINDOW):
            flip(path / SHARD / "weights.safetensors", offset)
        with (
            contextlib.closing(LaterFailsFirst(artifact, later_failed)) as check,
            pytest.raises(errors.DataLossError, match=r"extent 0 \(a\): piece 0 "),
        ):
            blob_check.check_all([check], 2, Ticker(None, None))


def test_a_failure_begins_no_further_window(path: pathlib.Path) -> None:
    failed: list[threading.Thread] = []
    failing = threading.Event()

    class FirstFails(blob_check.BlobCheck):
        begun = 0

        def check(self, window: Any, buffer: memoryview) -> None:
            self.begun += 1
            if window.begin == self.artifact.data_start:
                failed.append(threading.current_thread())
                failing.set()
                raise errors.IoError("mine")
            assert failing.wait(60)
            failed[0].join()
            super().check(window, buffer)

    with coldsnap.open(path) as artifact, contextlib.closing(FirstFails(artifact)) as check:
        with pytest.raises(errors.IoError, match="mine"):
            blob_check.check_all([check], 2, Ticker(None, None))
        assert check.begun <= 2


def test_cancelling_begins_no_further_window(path: pathlib.Path) -> None:
    cancel = threading.Event()
    with coldsnap.open(path) as artifact, contextlib.closing(Held(artifact, cancel)) as check:
        ticker = Ticker(lambda done, total: done and cancel.set(), cancel)
        with pytest.raises(errors.Cancelled, match="cancelled after"):
            blob_check.check_all([check], 1, ticker)
        for thread in threading.enumerate():
            if thread.name.startswith("coldsnap-verify"):
                thread.join()
        assert check.begun == 1


@pytest.mark.parametrize(
    ("name", "offset", "what"),
    [
        (
            "weights.safetensors",
            100,
            "the header of weights.safetensors has the SHA-256 [0-9a-f]{64}, and the artifact",
        ),
        ("weights.safetensors", 65535, "the header of weights.safetensors has"),
        ("manifest.json", 50, "manifest.json has the SHA-256"),
        ("leaves.bin", 40, "leaves.bin has the SHA-256"),
    ],
)
def test_what_changed_since_it_was_opened_is_found(path: pathlib.Path, name: str, offset: int, what: str) -> None:
    with coldsnap.open(path) as artifact:
        assert coldsnap.verify(artifact).ok
        flip(path / SHARD / name, offset)
        with pytest.raises(errors.DataLossError, match=f"verify {SHARD}: {what}"):
            coldsnap.verify(artifact)
    with pytest.raises(errors.DataLossError, match="open artifact"):
        coldsnap.verify(path)


def test_a_wrong_crc32_in_the_manifest_is_no_piece_s_fault(path: pathlib.Path) -> None:
    for extent in (0, 7):  # one compared in several pieces, one whole
        with coldsnap.open(path) as artifact:
            artifact._extents[extent] = artifact._extents[extent]._replace(crc32="00000000")
            with pytest.raises(
                errors.DataLossError, match=rf"extent {extent} .*crc32 is [0-9a-f]{{8}} and .* 00000000, th"
            ):
                coldsnap.verify(artifact)


def test_a_file_that_got_shorter(path: pathlib.Path) -> None:
    with coldsnap.open(path) as artifact:
        (path / SHARD / "weights.safetensors").chmod(0o644)
        os.truncate(path / SHARD / "weights.safetensors", artifact.data_start + 1000)
        with pytest.raises(
            errors.DataLossError, match=r"bytes at offset \d+: the file ends after 1000 of them"
        ) as caught:
            coldsnap.verify(artifact)
    assert caught.value.stage == "file"


def test_a_file_that_was_replaced(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    blob = path / SHARD / "weights.safetensors"
    with coldsnap.open(path) as artifact:
        shutil.copy2(blob, tmp_path / "copy")
        (tmp_path / "copy").rename(blob)
        with pytest.raises(errors.DataLossError, match="is another file than the one that was opened"):
            coldsnap.verify(artifact)
        blob.unlink()
        with pytest.raises(errors.IoError, match=r"verify .*: weights\.safetensors: No such file"):
            coldsnap.verify(artifact)


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
        digest = artifact.native.manifest_sha256
        assert markers(trust_dir) == [digest]
        artifact._extents[4] = artifact._extents[4]._replace(crc32="00000000")
        with pytest.raises(errors.DataLossError) as caught:
            coldsnap.verify(artifact)
    assert markers(trust_dir) == []
    assert caught.value.receipt is not None
    assert caught.value.receipt.reasons == [{"code": "marker_removed", "detail": f"{SHARD} {digest}"}]


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


def test_a_failing_read_keeps_its_number(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv

    def fail(fd: int, buffers: list[Any], offset: int) -> int:
        if offset >= WINDOW:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(
        errors.IoError, match=r"weights\.safetensors: read \d+ bytes at offset \d+: Input/output"
    ) as caught:
        coldsnap.verify(path)
    assert (caught.value.native, caught.value.stage) == (("errno", errno.EIO), "file")


def test_short_reads_are_continued(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:100_000]], offset))
    assert coldsnap.verify(path).ok


def test_the_page_cache_is_left_as_it_was(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "artifact", random_weights({f"{n}": WINDOW for n in range(8)}))
    blob = path / SHARD / "weights.safetensors"

    def resident() -> float:
        found, total = _native.residency(str(blob))
        return found / total

    def bring_in(nbytes: int) -> None:
        with blob.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
            for at in range(0, nbytes, 65536):
                os.pread(file.fileno(), 65536, at)

    bring_in(0)
    if resident() > 0.05:
        pytest.skip("the file system of the test's folder keeps files in memory")
    for share in (0.0, 0.5, 1.0):
        bring_in(int(share * blob.stat().st_size))
        before = resident()
        receipt = coldsnap.verify(path)
        assert resident() == pytest.approx(before, abs=0.05)
        assert receipt.residency["before"] == pytest.approx(share, abs=0.05)
        assert receipt.residency["after"] == pytest.approx(share, abs=0.05)


def test_what_is_no_artifact_says_what_opening_it_says(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"open directory .*nowhere"):
        coldsnap.verify(tmp_path / "nowhere")
    (tmp_path / "artifact.json").write_text("[" * 100_000)
    with pytest.raises(errors.FormatInvalidError):
        coldsnap.verify(tmp_path)
    (tmp_path / "artifact.json").unlink()
    os.mkfifo(tmp_path / "artifact.json")
    with pytest.raises(errors.FormatInvalidError, match="no regular file"):
        coldsnap.verify(tmp_path)
    with pytest.raises(errors.RequestInvalidError, match="the path is a int"):
        coldsnap.verify(5)  # type: ignore[arg-type]


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
