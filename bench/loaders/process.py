"""The other end of worker.py: a loader's process, asked and answered with a time limit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_GRACE_S = 10.0  # for a process that is to end by itself, before it is killed


class LoaderError(Exception):
    """A loader could not do what it was asked; the text is one line. Its process has ended or is of no more use."""


class Process:
    """Runs one loader; use it in a ``with`` block, which ends the process."""

    def __init__(self, loader: str, folder: Path) -> None:
        """Start the process.

        Args:
            loader: ``module:class``.
            folder: Where it runs, and where its standard output and error go: libraries leave logs where they run.
        """
        self._log = folder / f"{loader.replace(':', '.')}.log"
        mine_in, theirs_out = os.pipe()
        theirs_in, mine_out = os.pipe()
        self._in, self._out = mine_in, mine_out
        self._rest = b""
        # As absolute paths: the process runs in another folder.
        found = [os.path.abspath(path) for path in sys.path if path]
        command = [sys.executable, "-m", "bench.loaders.worker", loader, str(theirs_in), str(theirs_out)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(os.environ, PYTHONPATH=os.pathsep.join(found)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,  # a signal from the terminal is ours to handle
            )
        os.close(theirs_in)
        os.close(theirs_out)

    def ask(self, command: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """Have a command done and give its answer.

        Raises:
            LoaderError: It failed, the process died, or the time is over; in the last case the process is killed.
        """
        line = json.dumps({"do": command, **arguments}) + "\n"
        try:
            os.write(self._out, line.encode())
            answer = json.loads(self._line(time.monotonic() + limit_s))
        except TimeoutError:
            self._end(0)
            raise LoaderError(f"{command} was not done after {limit_s:g} s, and was ended") from None
        except (OSError, EOFError):
            raise LoaderError(f"its process {self._last_words()}") from None
        if "error" in answer:
            raise LoaderError(answer["error"])
        return dict(answer)

    def _line(self, until: float) -> bytes:
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            got = os.read(self._in, 1 << 16)
            if not got:
                raise EOFError
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        """Tell how the process ended, and the last line that it printed."""
        self._end(_GRACE_S)
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{how}: {lines[-1]}" if lines else how

    def _end(self, grace_s: float) -> None:
        """Give the process `grace_s` to end by itself, then end it and whatever it started."""
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._out >= 0:
            os.close(self._out)
            self._out = -1
            self._end(_GRACE_S)
            os.close(self._in)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
