"""Drives a headless Chromium by its DevTools protocol, over the pipe that it offers: no port, and no package for it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_LIMIT_S = 60.0  # for an answer; a busy machine needs seconds to start it
_FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-extensions",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    # Whatever asks for a name of the network finds none, whoever asks.
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe", "about:blank"),
)


def find() -> str | None:
    """The path of Chromium, or of Chrome, if one is installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One browser with one tab; use it in a ``with`` block, which ends it.

    Attributes:
        requested: The address of whatever the tab asked for, in order.
        complaints: Errors and warnings of the console, of scripts, and of what was refused.
    """

    def __init__(self, program: str) -> None:
        """Start it; ``program`` is from `find`."""
        self.requested: list[str] = []
        self.complaints: list[str] = []
        # It makes sockets there, whose paths may have 107 letters: a test's own folder is too deep.
        self._folder = tempfile.TemporaryDirectory(prefix="coldsnap-browser-", dir="/tmp")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It reads requests from descriptor 3 and writes to 4.
        move = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", move, program, f"--user-data-dir={self._folder.name}/profile", *_FLAGS]
        self._log = Path(self._folder.name, "log")
        with self._log.open("wb") as log:
            # In a group of its own, so that all of its processes can be ended together.
            self._process = subprocess.Popen(
                command,
                pass_fds=(to_browser, from_browser),
                env=dict(os.environ, HOME=self._folder.name, TMPDIR=self._folder.name),
                stdout=log,
                stderr=log,
                process_group=0,
            )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session = ""

    def __enter__(self) -> Browser:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._session = ""
        # Asked to, it ends all of its processes before itself, so nothing writes to the folder any more.
        with contextlib.suppress(RuntimeError, OSError, subprocess.TimeoutExpired):
            self.call("Browser.close")
            self._process.wait(timeout=_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for one thing and wait for its answer; events that come before it are kept.

        Raises:
            RuntimeError: The browser refuses, has ended, or doesn't answer in time.
        """
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        try:
            os.write(self._write, json.dumps(request).encode() + b"\0")
        except BrokenPipeError as error:
            raise self._failure(method, "the browser has ended") from error
        until = time.monotonic() + _LIMIT_S
        while True:
            message = self._message(method, until)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(self, page: Path, width: int, height: int = 900, scheme: str = "light") -> None:
        """Show a file in a window of ``width`` by ``height`` pixels, for a reader whose system prefers ``scheme``."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.as_uri())
        until = time.monotonic() + _LIMIT_S
        while self.value("document.readyState + ' ' + location.href") != f"complete {page.as_uri()}":
            if time.monotonic() > until:
                raise RuntimeError(f"{page.name} was not loaded after {_LIMIT_S:.0f} s")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page, as JSON can hold it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _message(self, method: str, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise self._failure(method, "the browser has ended" if ready else f"no answer after {_LIMIT_S:.0f} s")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _failure(self, method: str, cause: str) -> RuntimeError:
        return RuntimeError(f"{method}: {cause}; its log ends:\n{self._log.read_text(errors='replace')[-2000:]}")

    def _note(self, message: dict[str, Any]) -> None:
        method, found = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(found["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(found["exceptionDetails"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.complaints.append(found["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(found["args"]))
