"""Reads blobs from the first byte to the last and compares all of it: header, extents, and the zeros between them.

hashlib does the SHA-256 and the core the CRC-32; both let other threads run meanwhile. Memory is one window a thread.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coldsnap import errors
from coldsnap.artifact import Artifact, load_native
from coldsnap.settings import LEAF_BYTES, MIB
from coldsnap.ticker import Ticker

# A group of small extents is at most this long (docs/format.md, "Placement"), so no window ends within a small extent.
WINDOW_BYTES = 4 * MIB
_POLL_S = 0.05
_DIGEST_BYTES = 32
_BLOB = "weights.safetensors"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEEDS_A_COPY = "restore the artifact from a good copy, or capture it again"


class _Piece(NamedTuple):
    """A small extent, or a part of a large one that begins at a 64 KiB leaf of it."""

    extent: int
    begin: int  # of its bytes in the extent
    offset: int  # of its bytes in the blob
    nbytes: int
    leaves: memoryview  # what their digests must be


class _Window(NamedTuple):
    """Bytes [begin, end) of the blob, multiples of 65536: pieces, and padding around them."""

    begin: int
    end: int
    pieces: list[_Piece]


class BlobCheck:
    """The check of one open shard.

    Attributes:
        read_s, digest_s: Seconds spent, summed over all threads.
    Raises:
        IoError: The blob can't be opened once more.
        DataLossError: Another file has its place by now.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.read_s = self.digest_s = 0.0
        self._crc32_of = load_native().crc32
        self._crcs: dict[int, dict[int, tuple[int, int]]] = {}  # extent -> begin of a piece -> (its crc32, its bytes)
        self._lock = threading.Lock()
        self._fd = self._open_again()
        self._was_resident = self._residency()  # before any byte is read, which brings in others

    def close(self) -> None:
        os.close(self._fd)

    def windows(self) -> Iterator[_Window]:
        """The blob behind its header, in file order and without gaps."""
        pieces: list[_Piece] = []
        for piece in self._pieces():
            begin = pieces[0].offset if pieces else piece.offset
            # The first small extent begins a group, and windows over small extents are groups.
            starts_groups = pieces and piece.nbytes < LEAF_BYTES <= self._extent_bytes(pieces[-1])
            if starts_groups or piece.offset + piece.nbytes - begin > WINDOW_BYTES:
                yield _Window(begin, piece.offset, pieces)
                pieces = []
            pieces.append(piece)
        if pieces:
            yield _Window(pieces[0].offset, self.artifact.blob_bytes, pieces)

    def check_description(self) -> None:
        """Compare the blob's header, manifest.json and leaves.bin as they are now.

        Raises:
            DataLossError: One has another digest than when the artifact was opened.
            IoError: One can't be read.
        """
        native = self.artifact.native
        self._compare_start(self._fd, self.artifact.data_start, f"the header of {_BLOB}", native.header_sha256)
        for name, sha256 in (("manifest.json", native.manifest_sha256), ("leaves.bin", native.leaves_sha256)):
            fd = self._opened(name)
            try:
                self._compare_start(fd, os.fstat(fd).st_size, name, sha256)
            finally:
                os.close(fd)

    def check(self, window: _Window, buffer: memoryview) -> None:
        """Read a window and compare it; several threads may do this at once, each with a buffer of WINDOW_BYTES.

        Raises:
            DataLossError: A piece, a padding byte, or the end of the file is not as it should be.
            IoError: A read failed.
        """
        view = buffer[: window.end - window.begin]
        begin = time.monotonic()
        self._read_window(window, view)
        middle = time.monotonic()
        self._check_padding(window, view)
        for piece in window.pieces:
            start = piece.offset - window.begin
            self._check_piece(piece, view[start : start + piece.nbytes])
        with self._lock:
            self.read_s += middle - begin
            self.digest_s += time.monotonic() - middle

    def finish(self) -> None:
        """Compare the CRC-32 of extents that were checked in several pieces.

        Raises:
            DataLossError: One differs.
        """
        combine = load_native().crc32_combine
        for extent, parts in self._crcs.items():
            crc32 = 0
            for _, (part, nbytes) in sorted(parts.items()):
                crc32 = combine(crc32, part, nbytes)
            self._compare_crc32(extent, crc32)

    def _pieces(self) -> Iterator[_Piece]:
        for index, extent in enumerate(self.artifact.extents):
            leaves = memoryview(self.artifact.native.leaves(index))
            for begin in range(0, extent.nbytes, WINDOW_BYTES):
                nbytes = min(WINDOW_BYTES, extent.nbytes - begin)
                expected = leaves[begin // LEAF_BYTES * _DIGEST_BYTES :][: -(-nbytes // LEAF_BYTES) * _DIGEST_BYTES]
                yield _Piece(index, begin, extent.file_offset + begin, nbytes, expected)

    def _extent_bytes(self, piece: _Piece) -> int:
        return self.artifact.extent(piece.extent).nbytes

    def _read_window(self, window: _Window, view: memoryview) -> None:
        """Read a window and leave the page cache as it was.

        60 GB that are read once would push out what others have there, the blobs of running engines among it. So what
        came from the drive is dropped again, but not what somebody had brought in before.
        """
        keep = self._was_resident[(window.begin + window.end) // 2 // WINDOW_BYTES]
        if not keep:
            # Pages of an earlier read-ahead may carry the mark to go on with it, which even POSIX_FADV_RANDOM follows.
            self._drop(window)
        _read(self._fd, view, window.begin, self._doing(_BLOB))
        if not keep:
            self._drop(window)

    def _drop(self, window: _Window) -> None:
        os.posix_fadvise(self._fd, window.begin, window.end - window.begin, os.POSIX_FADV_DONTNEED)

    def _residency(self) -> list[bool]:
        """Of each WINDOW_BYTES of the blob, whether at least half is in the page cache; False where nobody can tell."""
        total = self.artifact.blob_bytes
        sizes = [min(WINDOW_BYTES, total - begin) for begin in range(0, total, WINDOW_BYTES)]
        resident_bytes = self.artifact.native.resident_bytes
        try:
            return [2 * resident_bytes(n * WINDOW_BYTES, nbytes) >= nbytes for n, nbytes in enumerate(sizes)]
        except errors.Error:
            return [False] * len(sizes)

    def _check_padding(self, window: _Window, view: memoryview) -> None:
        ends = [window.begin, *(piece.offset + piece.nbytes for piece in window.pieces)]
        starts = [*(piece.offset for piece in window.pieces), window.end]
        for begin, end in zip(ends, starts, strict=True):
            gap = bytes(view[begin - window.begin : end - window.begin])
            if gap.count(0) != len(gap):
                at = begin + len(gap) - len(gap.lstrip(b"\0"))
                raise self._lost(f"byte {at} of {_BLOB} is padding between extents and not 0")

    def _check_piece(self, piece: _Piece, view: memoryview) -> None:
        for at in range(0, len(view), LEAF_BYTES):
            leaf = at // LEAF_BYTES * _DIGEST_BYTES
            if hashlib.sha256(view[at : at + LEAF_BYTES]).digest() != piece.leaves[leaf : leaf + _DIGEST_BYTES]:
                raise self._wrong_piece(piece.extent, piece.begin + at)
        crc32 = self._crc32_of(view)
        if piece.nbytes == self._extent_bytes(piece):
            self._compare_crc32(piece.extent, crc32)
            return
        with self._lock:
            self._crcs.setdefault(piece.extent, {})[piece.begin] = (crc32, piece.nbytes)

    def _compare_crc32(self, extent: int, crc32: int) -> None:
        said = self.artifact.extent(extent).crc32
        if f"{crc32:08x}" != said:
            # All its leaves matched, and opening the artifact compared the leaves with sha256t.
            raise self._lost(
                f"{self._named(extent)}: crc32 is {crc32:08x} and the artifact says {said}, though each 64 KiB piece "
                "of the file has its right digest: the manifest or the memory is at fault"
            )

    def _wrong_piece(self, extent: int, begin: int) -> errors.DataLossError:
        nbytes = self.artifact.extent(extent).nbytes
        last = min(begin + LEAF_BYTES, nbytes) - 1
        where = f"piece {begin // LEAF_BYTES} (bytes {begin} to {last} of {nbytes})"
        return self._lost(f"{self._named(extent)}: {where} is not what was captured")

    def _named(self, extent: int) -> str:
        return f"extent {extent} ({self.artifact.name_of_extent(extent)})"

    def _compare_start(self, fd: int, nbytes: int, name: str, sha256: str) -> None:
        """Compare the first bytes of a file with their SHA-256."""
        found = hashlib.sha256()
        view = memoryview(bytearray(min(nbytes, WINDOW_BYTES)))
        for begin in range(0, nbytes, WINDOW_BYTES):
            chunk = view[: min(WINDOW_BYTES, nbytes - begin)]
            _read(fd, chunk, begin, self._doing(name))
            found.update(chunk)
        if found.hexdigest() != sha256:
            raise self._lost(f"{name} has the SHA-256 {found.hexdigest()}, and the artifact says {sha256}")

    def _open_again(self) -> int:
        # A description of our own: advice on reading ahead holds for a description, and the artifact's has restores.
        fd = self._opened(_BLOB)
        mine, opened = os.fstat(fd), os.fstat(self.artifact.native.blob_fd)
        if (mine.st_dev, mine.st_ino) != (opened.st_dev, opened.st_ino):
            os.close(fd)
            raise self._lost(f"{_BLOB} is another file than the one that was opened")
        # Each read is a whole window; reading ahead would bring in bytes of other windows, which nobody drops again.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def _opened(self, name: str) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=self.artifact.native.shard_dir_fd)
        except OSError as cause:
            raise errors.from_errno(cause, self._doing(name), stage="file") from cause

    def _doing(self, name: str) -> str:
        return f"verify {self.artifact.shard}: {name}"

    def _lost(self, what: str) -> errors.DataLossError:
        return errors.DataLossError(f"verify {self.artifact.shard}: {what}", stage="digest", remedy=_NEEDS_A_COPY)


def check_all(checks: Sequence[BlobCheck], threads: int, ticker: Ticker) -> None:
    """Compare the whole of several blobs.

    Args:
        checks: One for each shard.
        threads: How many read and hash at the same time.
        ticker: Called with bytes of all blobs.
    Raises:
        DataLossError: Something differs; of several findings the first in file order.
        IoError: A read failed.
        Cancelled: ``ticker`` returned True.
    """
    total = sum(check.artifact.blob_bytes for check in checks)
    if ticker(0, total):
        raise errors.Cancelled(f"verify {total} bytes: cancelled before the first of them")
    for check in checks:
        check.check_description()
    crew = _Crew(checks, threads)
    try:
        while crew.works():
            if ticker(crew.done, total):
                break
    finally:
        crew.stop()
    if crew.failures:
        raise min(crew.failures, key=lambda failure: failure[0])[1]
    if ticker.cancelled:
        raise errors.Cancelled(f"verify {total} bytes: cancelled after {crew.done} of them", stage="file")
    for check in checks:
        check.finish()
    ticker(total, total)


class _Crew:
    """Threads that take windows one by one until there are none, one fails, or they are told to stop."""

    def __init__(self, checks: Sequence[BlobCheck], threads: int) -> None:
        self.done = sum(check.artifact.data_start for check in checks)
        self.failures: list[tuple[int, BaseException]] = []  # with the number of the window
        self._tasks = enumerate((check, window) for check in checks for window in check.windows())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, name=f"coldsnap-verify-{n}") for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def works(self) -> bool:
        """Wait a moment; say whether any thread is still at work."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_POLL_S)
                return True
        return False

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        number = -1
        try:
            buffer = memoryview(bytearray(WINDOW_BYTES))
            while not self._stop.is_set():
                with self._lock:
                    task = next(self._tasks, None)
                if task is None:
                    return
                number, (check, window) = task
                check.check(window, buffer)
                with self._lock:
                    self.done += window.end - window.begin
        except BaseException as failure:
            self.failures.append((number, failure))
            self._stop.set()


def _read(fd: int, view: memoryview, offset: int, doing: str) -> None:
    done = 0
    while done < len(view):
        try:
            got = os.preadv(fd, [view[done:]], offset + done)
        except OSError as cause:
            what = f"{doing}: read {len(view)} bytes at offset {offset}"
            raise errors.from_errno(cause, what, stage="file") from cause
        if got == 0:
            raise errors.DataLossError(
                f"{doing}: read {len(view)} bytes at offset {offset}: the file ends after {done} of them",
                stage="file",
                remedy=_NEEDS_A_COPY,
            )
        done += got
