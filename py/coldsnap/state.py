"""Where coldsnap keeps what it knows about this machine: markers, quarantine, profile, receipts. Files of one user.

What lies here decides how much of an artifact is verified, so a folder or file that somebody else could have written is
refused. Files are replaced whole: a reader sees the old text or the new one, also after a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coldsnap import errors

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_OTHERS_MAY_WRITE = 0o022
_LOCK = ".lock"
# O_NONBLOCK: opening a FIFO must not wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the state: ``name`` below the state folder, or what ``variable`` names in its stead; "": nothing does."""

    name: str
    variable: str = ""


TRUST = Place("trust", "COLDSNAP_TRUST_DIR")
RECEIPTS = Place("receipts", "COLDSNAP_RECEIPT_DIR")
QUARANTINE = Place("quarantine")
_PROFILE_NAME = "profile.json"


def state_dir(environ: Mapping[str, str]) -> Path:
    """COLDSNAP_STATE_DIR, else ``coldsnap`` in the user's XDG state folder. Nothing is made.

    Raises:
        RequestInvalidError: The variable's path is relative.
        IoError: It isn't set, and nobody knows a home folder.
    """
    chosen = _chosen(environ, "COLDSNAP_STATE_DIR")
    if chosen is not None:
        return chosen
    xdg = environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(xdg) if os.path.isabs(xdg) else _home(environ) / ".local" / "state") / "coldsnap"


def is_known(environ: Mapping[str, str]) -> bool:
    """Whether anything says where the state folder is; where nothing does, no process of this user has kept anything."""
    try:
        state_dir(environ)
    except errors.IoError:
        return False
    return True


def path_of(place: Place, environ: Mapping[str, str]) -> Path:
    """Where the folder is, or would be."""
    return _chosen(environ, place.variable) or state_dir(environ) / place.name


def profile_path(environ: Mapping[str, str]) -> Path:
    """COLDSNAP_PROFILE, else ``profile.json`` in the state folder."""
    return _chosen(environ, "COLDSNAP_PROFILE") or state_dir(environ) / _PROFILE_NAME


@contextlib.contextmanager
def opened(place: Place, environ: Mapping[str, str], *, make: bool = False) -> Iterator[int | None]:
    """Open a folder of the state; gives its descriptor, or None where it isn't there and ``make`` is False.

    Raises:
        PolicyRefusedError: It, or the state folder around it, belongs to somebody else, or others may write to it.
        IoError: It can't be made or opened.
    """
    chosen = _chosen(environ, place.variable)
    if chosen is not None:
        with private_folder(chosen, place.variable, make=make) as fd:
            yield fd
        return
    with private_folder(state_dir(environ), "COLDSNAP_STATE_DIR", make=make) as around:
        if around is None:
            yield None
            return
        with private_folder(path_of(place, environ), place.variable or "COLDSNAP_STATE_DIR", make=make) as fd:
            yield fd


@contextlib.contextmanager
def private_folder(path: Path, variable: str, *, make: bool = False) -> Iterator[int | None]:
    """Open a folder that nobody but this user or root may write to; gives its descriptor, or None where it isn't there.

    Args:
        path: The folder.
        variable: The setting that names it, for the remedy.
        make: Whether it is made, 0700, where it isn't there.
    Raises:
        PolicyRefusedError: It is a link, belongs to somebody else, or others may write to it.
        IoError: It can't be made or opened.
    """
    fd = _open_folder(path, variable, make)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


@contextlib.contextmanager
def opened_for_profile(environ: Mapping[str, str]) -> Iterator[int]:
    """Open the folder that the profile is written to; it is made where it isn't there."""
    variable = "COLDSNAP_PROFILE" if environ.get("COLDSNAP_PROFILE") else "COLDSNAP_STATE_DIR"
    with private_folder(profile_path(environ).parent, variable, make=True) as fd:
        assert fd is not None  # it was to be made
        yield fd


@contextlib.contextmanager
def locked(folder: int) -> Iterator[None]:
    """Keep other processes that call this for the same folder waiting: for reading, changing and writing a file.

    Raises:
        IoError: The file system has no locks.
    """
    try:
        fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # closing gives it back
        except OSError:
            os.close(fd)
            raise
    except OSError as cause:
        raise errors.from_errno(cause, f"lock {_LOCK} of the state folder") from cause
    try:
        yield
    finally:
        os.close(fd)


def read_file(folder: int | None, name: str | Path, max_bytes: int) -> bytes | None:
    """Read a file that only this user or root can have written; None where there is none.

    What is checked is the descriptor that is then read, so nobody can put another file in its place in between.

    Args:
        folder: Descriptor of its folder; None when ``name`` is a path.
        name: The file's name, or its path.
        max_bytes: Most that it may have.
    Raises:
        PolicyRefusedError: It is a link or no regular file, belongs to somebody else, others may write to it, or it is
            too large.
        IoError: It can't be read.
    """
    doing = f"read {name}"
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as cause:
        if cause.errno == errno.ELOOP:
            raise errors.PolicyRefusedError(f"{doing}: it is a link", remedy="put the file itself there") from cause
        raise errors.from_errno(cause, doing) from cause
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise errors.PolicyRefusedError(f"{doing}: it is no regular file (mode {info.st_mode:o})")
        _refuse_unless_private(info, doing, f"chmod go-w {name}", "remove it")
        return _all_of(fd, doing, max_bytes)
    except OSError as cause:
        if isinstance(cause, errors.Error):
            raise
        raise errors.from_errno(cause, doing) from cause
    finally:
        os.close(fd)


def write_file(folder: int, name: str, data: bytes) -> None:
    """Write a file of this user's own (0600), whole and durable, in place of what has the name.

    Raises:
        IoError, NoSpaceError: A system call failed; what had the name is still there.
    """
    temporary = f".{name}.{os.urandom(8).hex()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)
    except OSError as cause:
        raise errors.from_errno(cause, f"write {len(data)} bytes to {name} in the state folder") from cause


def remove_file(folder: int, name: str) -> bool:
    """Remove a file, durably; say whether there was one.

    Raises:
        IoError: It can't be removed.
    """
    try:
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)
    except FileNotFoundError:
        return False
    except OSError as cause:
        raise errors.from_errno(cause, f"remove {name} from the state folder") from cause
    return True


def _chosen(environ: Mapping[str, str], variable: str) -> Path | None:
    text = environ.get(variable, "")
    if not text:
        return None
    if not os.path.isabs(text):
        # The processes of one engine may have different working folders, and each would see a state of its own.
        raise errors.RequestInvalidError(f"read {variable}: {text!r} is relative", remedy="give an absolute path")
    return Path(text)


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise errors.IoError(
            f"find the state folder: HOME is not set, and the system has no home folder for user {os.geteuid()}",
            remedy="set COLDSNAP_STATE_DIR",
        ) from None


def _open_folder(path: Path, variable: str, make: bool) -> int | None:
    doing = f"open the folder {path}"
    try:
        if make:
            _make(path)
        fd = os.open(path, _READ | os.O_DIRECTORY)
    except FileNotFoundError as cause:
        if not make:
            return None
        # A file system where nothing can be made, such as /proc, says that it is not there.
        raise errors.from_errno(cause, doing, remedy=f"let {variable} name a folder of your own") from cause
    except OSError as cause:
        if path.is_symlink():
            raise errors.PolicyRefusedError(
                f"{doing}: it is a link", remedy=f"name its target in {variable}"
            ) from cause
        raise errors.from_errno(cause, doing, remedy=f"let {variable} name a folder of your own") from cause
    try:
        instead = f"let {variable} name a folder that isn't there yet: it is made"
        _refuse_unless_private(os.fstat(fd), doing, f"chmod go-w {path}", instead)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make(path: Path) -> None:
    if not path.parent.exists():
        _make(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(_FOLDER_MODE)


def _refuse_unless_private(info: os.stat_result, doing: str, chmod: str, instead: str) -> None:
    if info.st_uid not in (os.geteuid(), 0):
        raise errors.PolicyRefusedError(
            f"{doing}: it belongs to user {info.st_uid}, this process is user {os.geteuid()}", remedy=instead
        )
    if info.st_mode & _OTHERS_MAY_WRITE:
        raise errors.PolicyRefusedError(
            f"{doing}: others may write to it (mode {stat.S_IMODE(info.st_mode):04o})", remedy=f"{chmod}, or {instead}"
        )


def _all_of(fd: int, doing: str, max_bytes: int) -> bytes:
    found = bytearray()
    while chunk := os.read(fd, max_bytes + 1 - len(found)):
        found += chunk
    if len(found) > max_bytes:
        raise errors.PolicyRefusedError(f"{doing}: it has more than {max_bytes} bytes", remedy="remove it")
    return bytes(found)
