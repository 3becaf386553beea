"""The folder that a calibration works in, and its end: on success, on an error, and on a signal.

Protocol: a folder is named ``coldsnap-calibrate.<pid>.<start time of the process>`` and holds a file ``lock`` with an
flock for as long as its process lives. The next run removes a folder only if that process is gone *and* the lock is
free: the name alone would mislead where two containers with their own process numbers share a volume.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from coldsnap import errors
from coldsnap._bench.host import MEMORY_FILE_SYSTEMS, mount_of

_PREFIX = "coldsnap-calibrate."
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_T = TypeVar("_T")
_not_waited_for: list[threading.Thread] = []
_signals_seen: list[int] = []
_folders: set[Path] = set()


class Interrupted(KeyboardInterrupt):
    """A signal asked us to stop. `exit_code` is what a shell would report: 130 for SIGINT, 143 for SIGTERM.

    `kept` says what there is of the results.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum
        self.kept = "no results were written"


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`, once: later ones cannot stop a clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread set handlers; whoever runs us elsewhere handles signals
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        _signals_seen.append(signum)
        raise Interrupted(signum)

    # What is lost in a destructor comes again in go_on(), so the interpreter need not complain of it.
    complain = sys.unraisablehook

    def complain_of_others(lost: Any) -> None:
        if not isinstance(lost.exc_value, Interrupted):
            complain(lost)

    sys.unraisablehook = complain_of_others
    # A signal that our parent ignores (nohup) stays ignored.
    before = {each: signal.getsignal(each) for each in _SIGNALS}
    for each, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(each, stop)
    try:
        yield
    finally:
        sys.unraisablehook = complain
        _signals_seen.clear()
        for each, old in before.items():
            signal.signal(each, old if old is not None else signal.SIG_DFL)


def go_on() -> None:
    """Raise `Interrupted` again if a signal has come; to be called between steps.

    What a handler raises is lost where the interpreter happens to be in a destructor or a weak reference's callback.
    """
    if _signals_seen:
        raise Interrupted(_signals_seen[0])


def interruptible(call: Callable[[], _T]) -> _T:
    """Run one long native call so that a signal ends the wait for it.

    The call itself goes on in its thread: after `Interrupted` the process must end by `leave`, since a thread that
    comes back from native code into an interpreter that is shutting down would abort the process.
    """
    result: list[_T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(call())
        except BaseException as error:  # carried over to the waiting thread, whatever it is
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    _not_waited_for.append(thread)  # before it starts: a signal may come in the middle of that
    thread.start()
    thread.join()
    _not_waited_for.remove(thread)
    if failure:
        raise failure[0]
    return result[0]


def leave(exit_code: int) -> int:
    """Give back `exit_code`, or end the process with it at once where an abandoned native call is still running."""
    if _not_waited_for:
        os._exit(exit_code)
    return exit_code


@contextlib.contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent` that is gone when the block ends, however it ends.

    Raises:
        IoError, NoSpaceError: The folder cannot be made.
    """
    remove_leftovers(parent)
    folder = parent / f"{_PREFIX}{os.getpid()}.{_start_time(os.getpid())}"
    lock = -1
    _folders.add(folder)
    try:
        try:
            folder.mkdir(mode=0o700)
            lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # some network mounts have no flock; the process number remains
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise errors.from_errno(error, f"make the working folder {folder}", stage="open") from error
        yield folder
    finally:
        _remove(folder)
        _folders.discard(folder)
        if lock >= 0:
            os.close(lock)


def remove_folders() -> None:
    """Remove what a signal in the middle of a clean-up left; call it once `Interrupted` was caught."""
    for folder in list(_folders):
        _remove(folder)
        _folders.discard(folder)


def remove_leftovers(parent: Path) -> list[str]:
    """Remove what killed calibrations of this user left in `parent`; give back the names of the removed folders."""
    removed = []
    for entry in sorted(parent.glob(_PREFIX + "*")):
        with contextlib.suppress(OSError):
            facts = entry.lstat()
            if entry.is_dir() and not entry.is_symlink() and facts.st_uid == os.geteuid() and _is_dead(entry):
                _remove(entry)
                removed.append(entry.name)
    return removed


def default_parent() -> Path:
    """Choose and make the folder for blobs where no --path is given: the user's cache folder, never in memory.

    Raises:
        RequestInvalidError: Neither the cache folder nor /var/tmp is on a drive.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    base = Path(cache) if os.path.isabs(cache) else Path(os.path.expanduser("~")) / ".cache"
    refused = []
    for candidate in (base / "coldsnap" / "calibrate", Path("/var/tmp")):
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            refused.append(f"{candidate} ({error.strerror})")
            continue
        kind = mount_of(candidate).kind
        if kind not in MEMORY_FILE_SYSTEMS:
            return candidate
        refused.append(f"{candidate} ({kind}: its files are memory)")
    raise errors.RequestInvalidError(
        f"choose a folder for the blob: {' and '.join(refused)} won't do",
        remedy="give --path=DIR, a folder on the drive that holds your models",
    )


def _is_dead(folder: Path) -> bool:
    """Tell whether the process that made `folder` is gone for certain."""
    pid, _, started = folder.name.removeprefix(_PREFIX).partition(".")
    if not pid.isdigit() or _start_time(int(pid)) == started:
        return False
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Killed between two system calls, or about to take its lock in another container: a minute tells them apart.
        return time.time() - folder.lstat().st_mtime > 60
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _start_time(pid: int) -> str:
    """Give the start time of a process in clock ticks since boot (proc(5), field 22); empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the command in parentheses and may hold anything, so count from the last one.
    return text.rpartition(")")[2].split()[19]


def _remove(folder: Path) -> None:
    """Remove a folder and all in it, also read-only ones, also while an abandoned call still adds files to it."""

    def unlock(function: Callable[..., Any], path: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            function(path)

    for _ in range(100):
        shutil.rmtree(folder, onerror=unlock)
        if not folder.exists():
            return
        time.sleep(0.01)
