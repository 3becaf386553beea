"""Reading a durable file as the drive has it: past the page cache, or not at all.

What was just written lies in memory, so reading it back through the page cache proves nothing of the drive.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from types import TracebackType

from coldsnap import errors, mounts
from coldsnap.artifact import load_native

_ALIGNMENT = 4096
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")  # where direct reads may work, and come from memory too
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ColdFile:
    """A file to be read past the page cache, by direct reads or, where those are refused, once the cache is empty of it.

    Args:
        path: A regular file whose bytes have been synced.
        chunk_bytes: Most bytes of one read.
    Raises:
        RouteUnavailableError: Direct reads are refused, and part of the file stays in the page cache; or it lies in
            memory anyway.
        IoError: It can't be opened or read.
    """

    def __init__(self, path: str, chunk_bytes: int) -> None:
        self._name = os.path.basename(path)
        self._chunk_bytes = chunk_bytes
        self._buffer = mmap.mmap(-1, chunk_bytes + 2 * _ALIGNMENT)  # aligned to a page, as direct reads want it
        self._fd = self._open(path)

    def parts(self, offset: int, nbytes: int) -> Iterator[memoryview]:
        """The bytes [offset, offset + nbytes) in pieces of ``chunk_bytes``; each is valid until the next.

        Raises:
            IoError: A read failed.
            DataLossError: The file ends before them.
        """
        for begin in range(offset, offset + nbytes, self._chunk_bytes):
            length = min(self._chunk_bytes, offset + nbytes - begin)
            low = begin // _ALIGNMENT * _ALIGNMENT
            high = -(-(begin + length) // _ALIGNMENT) * _ALIGNMENT
            view = memoryview(self._buffer)
            self._read(view[: high - low], low, begin + length)
            yield view[begin - low : begin - low + length]

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> ColdFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, path: str) -> int:
        try:
            fd = os.open(path, _OPEN | os.O_DIRECT)
        except OSError as cause:
            refused = cause
        else:
            self._refuse_memory(fd)
            try:
                os.preadv(fd, [memoryview(self._buffer)[:_ALIGNMENT]], 0)
                return fd
            except OSError as cause:
                os.close(fd)
                refused = cause
        if refused.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise errors.from_errno(refused, f"read {self._name} again", stage="digest") from refused
        return self._open_dropped(path, refused)

    def _refuse_memory(self, fd: int) -> None:
        system = mounts.of_descriptor(fd).type
        if system in _IN_MEMORY:
            os.close(fd)
            raise errors.RouteUnavailableError(
                f"read {self._name} again past the page cache: it lies in memory, on {system}, and on no drive",
                stage="digest",
                remedy="leave preverified out, or capture to another file system",
            )

    def _open_dropped(self, path: str, refused: OSError) -> int:
        try:
            fd = os.open(path, _OPEN)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as cause:
            raise errors.from_errno(cause, f"drop {self._name} from the page cache", stage="digest") from cause
        resident, nbytes = load_native().residency(path)
        if resident == 0:
            return fd
        os.close(fd)
        raise errors.RouteUnavailableError(
            f"read {self._name} again past the page cache: {resident} of its {nbytes} bytes stay there, and direct "
            f"reads are refused ({refused.strerror})",
            stage="digest",
            remedy="leave preverified out, or capture to another file system",
        )

    def _read(self, view: memoryview, offset: int, needed_end: int) -> None:
        """Fill the view from an aligned offset; the file may end within its last block, but behind ``needed_end``."""
        done = 0
        while offset + done < needed_end:
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as cause:
                doing = f"read {len(view)} bytes at offset {offset} of {self._name} again"
                raise errors.from_errno(cause, doing, stage="digest") from cause
            if got == 0:
                raise errors.DataLossError(
                    f"read {len(view)} bytes at offset {offset} of {self._name} again: the file ends after {done}",
                    stage="digest",
                    remedy="capture again; if it happens again, doubt the drive",
                )
            done += got
