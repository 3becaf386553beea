"""A large file that appears under its name whole or not at all, and never in the place of another.

Where the file system can, it has no name until it is complete, so that a killed process leaves nothing. Elsewhere it is
written under a name that begins with a dot, locked by its writer: whoever writes to the same folder next removes those
that no writer has any more. A file system without locks keeps them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from coldsnap.new_file import saying, sync_folder

_SUFFIX = ".coldsnap-part"
_PART = re.compile(rf"\..+\.[0-9a-f]{{16}}{re.escape(_SUFFIX)}", re.DOTALL)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PROC_FD = "/proc/self/fd"
# What file systems and older kernels answer to O_TMPFILE where they have none.
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS)


@contextlib.contextmanager
def appearing(destination: Path) -> Iterator[IO[bytes]]:
    """Give a file to write to; when the block ends without a failure, it is durable under its name.

    Raises:
        ExistsError: Something has the name by then.
        IoError, NoSpaceError: A system call failed. The name is as it was.
    """
    with contextlib.ExitStack() as stack:
        with saying(f"open the folder of {destination}"):
            folder = os.open(destination.parent, _FOLDER)
            stack.callback(os.close, folder)
            _remove_dead(folder)
            fd, part = _created(folder, destination.name)
        if part is not None:
            stack.callback(_forget, folder, part)
        with open(fd, "wb") as stream:
            yield stream
            stream.flush()
            with saying(f"sync {destination}"):
                os.fsync(fd)
            # A link, which unlike a rename replaces nothing. The folder's descriptor makes it follow the one in /proc.
            with saying(f"give {destination} its name"):
                if part is None:
                    os.link(f"{_PROC_FD}/{fd}", destination.name, dst_dir_fd=folder, follow_symlinks=True)
                else:
                    os.link(part, destination.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        sync_folder(destination.parent, f"the folder of {destination.name}")


def _created(folder: int, name: str) -> tuple[int, str | None]:
    """A new file: its descriptor, and its name, if it has one already."""
    fd = _unnamed(folder)
    if fd is not None:
        return fd, None
    while True:
        part = f".{name}.{os.urandom(8).hex()}{_SUFFIX}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        with contextlib.suppress(OSError):  # no locks here
            fcntl.flock(fd, fcntl.LOCK_EX)  # who has it, thinks that it is a dead one's, and will be done in a moment
        if os.fstat(fd).st_nlink == 1:
            return fd, part
        os.close(fd)  # somebody took it for a dead one before it was locked


def _unnamed(folder: int) -> int | None:
    """A file without a name that can get one; None where there is no such thing."""
    if not os.path.isdir(_PROC_FD):
        return None
    try:
        return os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as cause:
        if cause.errno in _NO_UNNAMED:
            return None
        raise


def _remove_dead(folder: int) -> None:
    for name in filter(_PART.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):  # it has a writer, or is gone, or is somebody else's
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


def _forget(folder: int, part: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
