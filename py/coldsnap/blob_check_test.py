"""Reading and comparing a blob in windows: the cut, the order of findings, stopping, and reads that fail."""

import contextlib
import errno
import os
import pathlib
import threading
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, blob_check, errors, tensors
from coldsnap.ticker import Ticker

WINDOW = blob_check.WINDOW_BYTES
# In the order of the blob: large by name, then small. One is several windows, one fills a window, some share one.
MIXED = {"a": WINDOW * 2 + 12345, "b": WINDOW, "c": 65536, "d": 65537, "f": 65535, "g": 1, "h": 511, "i": 60_000}
SIZES = {
    "none": {"none": 0},
    "one": {"one": 1},
    "groups": {f"{n:03}": 30_000 for n in range(300)},  # small extents in three groups
    "pieces": {f"{n:03}": 65536 for n in range(100)},
    "edge": {"x": WINDOW - 65536, **{f"{n:03}": 40_000 for n in range(110)}},
    "mixed": MIXED,
}


def write(path: pathlib.Path, sizes: dict[str, int]) -> pathlib.Path:
    weights = {name: np.full(nbytes, 7, np.uint8) for name, nbytes in sizes.items()}
    _native.write_artifact(str(path), tensors.native_specs(weights), "{}", "{}", "{}")
    return path


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "artifact", MIXED)


def flip(path: pathlib.Path, offset: int) -> None:
    blob = path / "shard-00-00-00" / "weights.safetensors"
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(offset)
        file.write(b"x")


def verify(path: pathlib.Path) -> None:
    with coldsnap.open(path) as artifact, contextlib.closing(blob_check.BlobCheck(artifact)) as check:
        blob_check.check_all([check], 2, Ticker(None, None))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_windows_are_the_whole_blob_and_cut_no_small_extent(tmp_path: pathlib.Path, sizes: dict[str, int]) -> None:
    path = write(tmp_path / "artifact", sizes)
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
            flip(path, offset)
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
        verify(path)
    assert (caught.value.native, caught.value.stage) == (("errno", errno.EIO), "file")


def test_short_reads_are_continued(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:100_000]], offset))
    verify(path)


def test_a_mark_of_an_earlier_read_ahead_brings_nothing_back(tmp_path: pathlib.Path) -> None:
    """Opening an artifact reads its header, and the kernel marks a page behind that as the place to read on from."""
    path = write(tmp_path / "artifact", {f"{n}": WINDOW for n in range(8)})
    with open(path / "shard-00-00-00" / "weights.safetensors", "rb") as blob:
        os.fsync(blob.fileno())
        os.posix_fadvise(blob.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with coldsnap.open(path) as artifact, contextlib.closing(blob_check.BlobCheck(artifact)) as check:
        if artifact.native.residency() > 0.05:
            pytest.skip("the file system of the test's folder keeps files in memory")
        first, second, *_ = check.windows()
        for window in (second, first):
            check.check(window, memoryview(bytearray(WINDOW)))
        assert artifact.native.resident_bytes(second.begin, WINDOW) < WINDOW / 10
