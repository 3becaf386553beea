"""Files and folders that are written once, in Python: exact, durable, and never in the place of another.

Used by the capture's fallback, by the store and by ranks that meet in it. Whoever calls removes what a failure leaves.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from coldsnap import errors

_FOLDER_MODE, _FILE_MODE = 0o755, 0o444
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What posix_fallocate answers where the file system can't reserve; the writes then find out about the room.
_CANT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL)


class NewFile:
    """A file that is not there yet; use it in a ``with`` block. Only `finish` makes it durable.

    Args:
        folder: Path of its folder.
        name: Its name, also in messages.
    Raises:
        ExistsError: Something has the name.
        IoError, NoSpaceError: It can't be created.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self._name, self._folder = name, folder
        with saying(f"create {name}"):
            self._fd = os.open(os.path.join(folder, name), _CREATE, 0o600)

    def reserve(self, nbytes: int) -> None:
        """Have the file system set the bytes aside, all zero: a full one is noticed here and not in the middle.

        Raises:
            NoSpaceError: It has not as much; the message says how much it has.
        """
        try:
            os.posix_fallocate(self._fd, 0, nbytes)
        except OSError as cause:
            if cause.errno in _NO_ROOM:
                free = os.fstatvfs(self._fd)
                text = f"reserve {nbytes} bytes for {self._name}, with {free.f_bavail * free.f_frsize} bytes free"
                raise errors.from_errno(
                    cause, text, stage="file", remedy="make room, or choose another place"
                ) from cause
            if cause.errno not in _CANT_RESERVE:
                raise errors.from_errno(cause, f"reserve {nbytes} bytes for {self._name}", stage="file") from cause
            with saying(f"set {self._name} to {nbytes} bytes"):
                os.ftruncate(self._fd, nbytes)

    def write(self, data: bytes | memoryview, offset: int, doing: Callable[[], str] | None = None) -> None:
        """Write all of ``data`` at ``offset``; ``doing`` is what the message begins with when that fails.

        Raises:
            IoError, NoSpaceError: A write failed, or wrote nothing.
        """
        rest, at = memoryview(data), offset
        while rest:
            try:
                written = os.pwrite(self._fd, rest, at)
                if written == 0:
                    raise OSError(errno.EIO, "the system wrote none of them")
            except OSError as cause:
                before = f"{doing()}: " if doing else ""
                what = f"{before}write {len(rest)} bytes at offset {at} of {self._name}"
                raise errors.from_errno(cause, what, stage="file") from cause
            rest, at = rest[written:], at + written

    def finish(self, mode: int = _FILE_MODE) -> None:
        """Give the file its mode, bring it to the drive, and close it.

        Raises:
            IoError, NoSpaceError: One of these failed: what was written may be lost.
        """
        with saying(f"set the mode of {self._name}"):
            os.fchmod(self._fd, mode)
        with saying(f"sync {self._name}"):
            os.fsync(self._fd)  # not fdatasync, which leaves the mode to chance
        with saying(f"close {self._name}"):
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:  # a failure is on its way, and is the one to report
            with contextlib.suppress(OSError):
                os.close(self._fd)


def write_file(folder: str | os.PathLike[str], name: str, data: bytes) -> None:
    """Write a small file that is not there yet, durably; its name becomes durable with `sync_folder`.

    Raises:
        ExistsError, IoError, NoSpaceError: As of `NewFile`.
    """
    with NewFile(folder, name) as file:
        file.write(data, 0)
        file.finish()


def replace_file(folder: str | os.PathLike[str], name: str, data: bytes) -> None:
    """Write a small file in the place of what has the name: readers see the old one or the new one, whole.

    Raises:
        IoError, NoSpaceError: A system call failed; what had the name still has it, or the whole new one does.
    """
    temporary = f".{name}.{os.urandom(8).hex()}"
    path = os.path.join(folder, temporary)
    try:
        write_file(folder, temporary, data)
        with saying(f"move the new {name} to its place"):
            os.rename(path, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    sync_folder(folder, f"the folder of {name}")


def make_folder(path: str | os.PathLike[str], what: str) -> None:
    """Make a folder that is not there yet, 0755 whatever the umask.

    Raises:
        ExistsError, IoError, NoSpaceError: It can't be made.
    """
    with saying(f"create folder {what}"):
        os.mkdir(path)
        os.chmod(path, _FOLDER_MODE)


def make_folders(path: Path) -> None:
    """Make a folder, and those around it, where they are not there yet; what is made is durable.

    Raises:
        IoError, NoSpaceError: One can't be made.
    """
    if not path.parent.exists():
        make_folders(path.parent)
    if not path.exists():
        with contextlib.suppress(errors.ExistsError):
            make_folder(path, str(path))
            sync_folder(path.parent, f"folder {path.parent}")


def sync_folder(path: str | os.PathLike[str], what: str) -> None:
    """Bring the names in a folder to the drive.

    Raises:
        IoError: That failed.
    """
    with saying(f"sync {what}"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_small(path: Path, max_bytes: int) -> bytes | None:
    """The bytes of a regular file; None where there is none. Links are not followed.

    Raises:
        FormatInvalidError: It has more than ``max_bytes``.
        IoError: It can't be read.
    """
    try:
        with saying(f"read {path}", stage="open"), open(os.open(path, _READ), "rb") as file:
            data = file.read(max_bytes + 1)
    except errors.Error as cause:
        if cause.native in (("errno", errno.ENOENT), ("errno", errno.ENOTDIR)):
            return None
        raise
    if len(data) > max_bytes:
        raise errors.FormatInvalidError(f"read {path}: it has more than {max_bytes} bytes", stage="open")
    return data


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it; nothing happens where it is gone already.

    Raises:
        IoError: Something can't be removed.
    """
    import shutil  # with the archive modules, which `import coldsnap` should not wait for

    with saying(f"remove {path}", stage="publish"), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


@contextlib.contextmanager
def saying(doing: str, remedy: str = "", stage: str = "file") -> Iterator[None]:
    """Turn a failed system call of the block into the error with its code.

    Raises:
        IoError, NoSpaceError, ExistsError, ...: As `coldsnap.errors.from_errno`.
    """
    try:
        yield
    except OSError as cause:
        if isinstance(cause, errors.Error):
            raise
        raise errors.from_errno(cause, doing, stage=stage, remedy=remedy) from cause
