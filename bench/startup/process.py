"""A process whose output is stamped line by line, and which never outlives its block, nor do those that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.startup.phases import Line

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 20.0  # for an engine that is asked to end: it then removes its shared memory
_GONE_S = 5.0  # what the kernel needs to end a killed group, at most
_LAST_LINES = 4
_SHARED = Path("/dev/shm")


class Process:
    """Runs a command in a process group of its own; use it in a ``with`` block."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.lines: list[Line] = []
        self._there = _shared_memory()
        # A signal between the birth of the process and the block that ends it would leave it to itself.
        self._held = _Held()
        try:
            self.spawned_s = time.monotonic()
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_born,
            )
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        except BaseException:
            self._held.release()
            raise

    def __enter__(self) -> Process:
        try:
            self._held.release()
        except BaseException:  # the signal that was held back: the block, and so its end, is never reached
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def since_spawn(self, moment_s: float) -> float:
        """Seconds between the spawn and a moment on the monotonic clock, which all processes share."""
        return moment_s - self.spawned_s

    def wait(self, limit_s: float) -> bool:
        """Wait for the process's own end; False where it did not come within `limit_s` seconds."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """End the process: it is asked first; then it and all that it started are killed, and their shared memory removed."""
        if self.alive:
            self._process.send_signal(signal.SIGINT)
            self.wait(_GRACE_S)
        theirs = _mapped_by(members_of(self._process.pid)) - self._there
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        until = time.monotonic() + _GONE_S
        while members_of(self._process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        self._process.wait()
        self._reader.join(_GONE_S)
        for name in theirs and theirs - _mapped_by(everyone()):  # what others still have is not only theirs
            with contextlib.suppress(OSError):  # it is gone already
                (_SHARED / name).unlink()

    def last_words(self) -> str:
        """How the process ended, and its last lines, in one line; waits for that end."""
        code = self._process.wait()
        how = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
        texts = [text.strip() for _, text in self.lines if text.strip()]
        return f"{how}: {' | '.join(texts[-_LAST_LINES:])[-800:]}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for raw in stream:
                self.lines.append((time.monotonic() - self.spawned_s, raw.decode(errors="replace").rstrip("\n")))


def everyone() -> list[int]:
    """All processes of the machine, as far as they can be seen."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def members_of(group: int) -> list[int]:
    """The processes of a group that still run; one that waits to be reaped, which may take its reaper seconds, does not."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The second field is the command in parentheses and may hold anything, so count from the last one.
            state, _, its_group = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if its_group == str(group) and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def _shared_memory() -> set[str]:
    """The names in shared memory; of files, since whoever puts a folder there looks after it."""
    return {path.name for path in _SHARED.glob("*") if path.is_file()}


def _mapped_by(processes: Sequence[int]) -> set[str]:
    """Shared memory that these processes have mapped, by name. Killed, they leave it to stay until the machine restarts."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for line in Path(f"/proc/{process}/maps").read_text(errors="replace").splitlines():
                path = line.partition("/")[2]
                if f"/{path}".startswith(f"{_SHARED}/"):
                    found.add(Path(path).name)
    return found & _shared_memory()


class _Held:
    """Signals that come until `release`, which hands them on.

    Not by a mask: that is one thread's, and another one takes the signal, for which Python interrupts the main thread.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # no other one is interrupted
            handlers = {each: signal.getsignal(each) for each in _SIGNALS}
            self._before = {each: handler for each, handler in handlers.items() if callable(handler)}
        for each in self._before:
            signal.signal(each, lambda signum, frame: self._came.append(signum))

    def release(self) -> None:
        """Let signals through again; what the handler of one that came raises comes from here."""
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}
        while self._came:
            signal.raise_signal(self._came.pop(0))


def _as_born() -> None:
    """In the child: it can be asked to end, also where whoever started us has us ignore that, as nohup does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
