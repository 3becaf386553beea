"""Bringing a blob into the page cache: once an engine runs, so that the next start on this node finds it there, or
while one builds its model, so that this start does.

One daemon thread reads one piece at a time. For a later start it does so in the idle class of I/O, and then rests for as
long as the piece took: not every I/O scheduler knows classes, and half of the drive is left to others by every one. Its
processor priority stays as it is: a thread that is held back while it has the interpreter's lock would hold the engine's
own threads back. For a start that waits it neither rests nor stands back, and its pieces are larger: the start is busy
building a model in Python, and after each piece this thread waits for the interpreter's lock.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coldsnap import errors, settings
from coldsnap.artifact import Artifact, load_native

PIECE_BYTES = 8 * settings.MIB
# So large, it is as fast beside a thread that never rests as without one; by pieces of 8 MiB it was a third of that
# (bench/results/read-ahead-2-cores.json). Larger ones would only make `stop` wait longer.
SOON_PIECE_BYTES = 64 * settings.MIB
_BUFFER_BYTES = settings.MIB  # of the processor's cache: what is read is not looked at
MOSTLY_RESIDENT = 0.9  # of the blob: the rest is not worth a thread
_LOOK_BYTES = 128 * settings.MIB  # between two looks at the memory that is available
_LONGEST_REST_S = 1.0
_MEMINFO = Path("/proc/meminfo")
_BLOB = "weights.safetensors"
# ioprio_set(2) has no wrapper in libc, and its number is the architecture's.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_THREAD, _IDLE_CLASS = (1, 0), 3 << 13  # IOPRIO_WHO_PROCESS and 0; IOPRIO_CLASS_IDLE


class KeepCached:
    """What became of a blob's place in the page cache; from `keep`.

    In a forked child there is no reader: `wait` and `stop` return at once, and `reason` stays as it was.

    Attributes:
        setting: The policy and who chose it, for a receipt.
    """

    def __init__(
        self,
        setting: settings.Setting,
        code: str,
        detail: str,
        *,
        soon: bool = False,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.setting = setting
        self._reason = (code, detail)
        self._soon, self._wanted = soon, wanted
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def reason(self) -> dict[str, str]:
        """Code and detail for a receipt, as of now.

        Codes: ``keep_cached`` (the reader runs, or has brought the blob in), ``keep_cached_resident`` (it was there),
        ``keep_cached_no_room``, ``keep_cached_off``, ``keep_cached_stopped``, ``keep_cached_failed``.
        """
        code, detail = self._reason
        return {"code": code, "detail": detail}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the reader; say whether it has ended, or there is none."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the reader after the piece that it is reading, and wait for that."""
        if os.getpid() != self._pid:
            return  # the event's lock may have been taken when the process forked
        self._stop.set()
        self.wait()

    def _start(self, native: Any) -> None:
        self._thread = threading.Thread(target=self._run, args=(native,), name="coldsnap-keep-cached", daemon=True)
        # Python ends daemon threads wherever they are, and one inside the extension module would take the process along.
        atexit.register(self.stop)
        self._thread.start()

    def _run(self, native: Any) -> None:
        refused = None if self._soon else _enter_idle_class()
        try:
            self._reason = self._bring_in(native, f"; idle I/O class refused: {refused}" if refused else "")
        except (OSError, errors.Error) as failure:
            self._reason = ("keep_cached_failed", f"read {_BLOB} into the page cache: {failure}")
        finally:
            atexit.unregister(self.stop)

    def _bring_in(self, native: Any, note: str) -> tuple[str, str]:
        """Read what is not there; ``native`` keeps the descriptor open. Returns how it ended."""
        total, read_bytes, looked = native.blob_bytes, 0, -_LOOK_BYTES
        piece_bytes = SOON_PIECE_BYTES if self._soon else PIECE_BYTES
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        for offset in range(0, total, piece_bytes):
            if self.setting.value == "auto" and offset - looked >= _LOOK_BYTES:
                looked = offset
                if why := why_no_room(total):
                    return "keep_cached_no_room", f"{why}; stopped after {offset} bytes"
            begin = time.monotonic()
            nbytes = min(piece_bytes, total - offset)
            if not _is_resident(native, offset, nbytes):
                _read(native.blob_fd, buffer, offset, nbytes)
                read_bytes += nbytes
            if self._stopped(begin):
                return "keep_cached_stopped", f"stopped after {offset + nbytes} of {total} bytes of {_BLOB}"
        return "keep_cached", f"{read_bytes} of {total} bytes of {_BLOB} were read into the page cache{note}"

    def _stopped(self, begin: float) -> bool:
        """After a piece: whether that was the last one. Rests first where nobody waits for the next."""
        rest_s = 0.0 if self._soon else min(time.monotonic() - begin, _LONGEST_REST_S)
        return self._stop.wait(rest_s) or not self._wanted()


def keep(
    artifact: Artifact,
    environ: Mapping[str, str] = os.environ,
    *,
    soon: bool = False,
    wanted: Callable[[], bool] = lambda: True,
) -> KeepCached:
    """Bring an artifact's blob into the page cache in the background, where COLDSNAP_KEEP_CACHED wants it there.

    For engine adapters, once the engine is ready, or while it builds its model. ``no``: never. ``yes``: always. ``auto``:
    unless nine tenths of it are there, or it is more than half of what memory cgroup and machine have available, divided by
    the local ranks. Both count the page cache as available. A file that is put in the blob's place meanwhile is left alone.

    Args:
        artifact: An opened artifact; it may be closed while the reader runs.
        environ: Where COLDSNAP_KEEP_CACHED is looked up.
        soon: Whether somebody waits for the blob: no pauses then, and not the idle class. Stop it before a restore.
        wanted: Asked after each piece, in the reader's thread, whether there is to be another one.
    Raises:
        RequestInvalidError: The variable has an unknown value, or the artifact is closed.
    """
    setting = settings.resolve_one(settings.KEEP_CACHED, None, environ)
    native = artifact.native
    if setting.value == "no":
        return KeepCached(setting, "keep_cached_off", f"{settings.KEEP_CACHED.variable} is no")
    if setting.value == "auto":
        resident = _residency(native)
        if resident >= MOSTLY_RESIDENT:
            return KeepCached(setting, "keep_cached_resident", f"{resident:.3f} of {_BLOB} is in the page cache")
        if why := why_no_room(native.blob_bytes):
            return KeepCached(setting, "keep_cached_no_room", why)
    pieces = SOON_PIECE_BYTES if soon else PIECE_BYTES
    doing = f"{native.blob_bytes} bytes of {_BLOB} are being read into the page cache, {pieces} at a time"
    kept = KeepCached(setting, "keep_cached", doing, soon=soon, wanted=wanted)
    kept._start(native)
    return kept


def why_no_room(nbytes: int) -> str | None:
    """Why ``nbytes`` should not be brought into the page cache; None where there is room.

    The page cache counts as available, so the answer does not change because of what has been read.
    """
    limits = load_native().limits()
    headroom, ranks = limits["memory_headroom_bytes"], limits["local_ranks"]
    known = [] if headroom is None else [(headroom, limits["memory_source"])]
    known += [(nbytes, str(_MEMINFO)) for nbytes in _available_bytes()]
    if not known:
        return f"nothing says how much memory is available: {_MEMINFO} has no MemAvailable"
    available, source = min(known)
    if nbytes <= available // 2 // ranks:
        return None
    shared = f", divided by {ranks} local ranks" if ranks > 1 else ""
    return f"{nbytes} bytes are more than half of the {available} bytes that {source} leaves{shared}"


def _available_bytes() -> list[int]:
    """MemAvailable; nothing where the kernel does not say."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        return []
    return [int(found[1]) * settings.KIB] if found else []


def _residency(native: Any) -> float:
    try:
        found: float = native.residency()
    except errors.Error:
        return 0.0  # nobody can tell
    return found


def _is_resident(native: Any, offset: int, nbytes: int) -> bool:
    try:
        return bool(native.resident_bytes(offset, nbytes) >= nbytes)
    except errors.Error:
        return False


def _read(fd: int, buffer: memoryview, offset: int, nbytes: int) -> None:
    """Read a piece with as few calls as it takes, all of it into the same buffer again and again."""
    done = 0
    while done < nbytes:
        whole, rest = divmod(nbytes - done, len(buffer))
        got = os.preadv(fd, [*[buffer] * whole, buffer[:rest]], offset + done)
        if got == 0:
            raise errors.DataLossError(f"the file ends after {offset + done} bytes", stage="file")
        done += got


def _enter_idle_class() -> str | None:
    """Put the calling thread into the idle class of I/O; why not, where that fails."""
    import ctypes  # which `import coldsnap` leaves alone

    number = _IOPRIO_SET.get(platform.machine())
    if number is None:
        return f"the number of ioprio_set on {platform.machine()} is not known"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *_THIS_THREAD, _IDLE_CLASS) != 0:
        return os.strerror(ctypes.get_errno())
    return None
