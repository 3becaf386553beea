"""A fresh Debian in a folder: made by mmdebstrap, entered through namespaces, and gone with all that ran in it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from tests.roots import host

HOME = "/srv"
CHECKOUT = f"{HOME}/coldsnap"
# Of Debian's installer's default set; the checkout and pip's downloads need the rest.
_VARIANT, _PACKAGES = "important", "ca-certificates,git"
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Bind = tuple[str, str, bool]


class Root:
    """A root and how commands run in it.

    Attributes:
        folder: The root's own folder.
        binds: What is laid in for each command: path here, path there, whether read-only.
        environment: Of each command.
        files: Text of files that a new root gets, by their path there.
    """

    def __init__(self, scratch: pathlib.Path, binds: list[Bind], environment: dict[str, str]) -> None:
        self._scratch, self.folder = scratch, scratch / "system"
        self.binds = binds
        self.files: dict[str, str] = {}
        self.environment = {"HOME": HOME, "LC_ALL": "C.UTF-8", "PATH": _PATH, "USER": "root", **environment}

    def make(self, suite: str) -> None:
        """Installs the suite."""
        # The mounts that mmdebstrap makes meanwhile are in a namespace too.
        command = [*_NAMESPACES, "mmdebstrap", "--mode=root", f"--variant={_VARIANT}", f"--include={_PACKAGES}"]
        command += [f"--aptopt={line}" for line in host.apt_options()]
        status = _run([*command, suite, str(self.folder)], self._scratch / "mmdebstrap.log")
        if status:
            words = (self._scratch / "mmdebstrap.log").read_text(errors="replace").splitlines()[-20:]
            raise SystemExit("\n".join([f"make a root of Debian {suite}: mmdebstrap ended with {status}", *words]))
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            self.files[path] = pathlib.Path(path).read_text()
        for path, text in self.files.items():
            self.at(path).unlink(missing_ok=True)  # a link may lead out of the root
            self.at(path).write_text(text, encoding="utf-8")

    def at(self, path: str) -> pathlib.Path:
        """Where a path of the root is here."""
        return self.folder / path.lstrip("/")

    def run(self, script: str, log: pathlib.Path | None = None) -> int:
        """Runs a bash script in the checkout; what it printed goes to ``log``, else it is seen. Its exit status."""
        order = self._scratch / "order.json"
        command = ["bash", "-euc", f"cd {CHECKOUT}\n{script}"]
        environment = self.environment
        binds = sorted(self.binds, key=lambda each: each[1])
        order.write_text(
            json.dumps({"root": str(self.folder), "binds": binds, "command": command, "environment": environment})
        )
        return _run([*_NAMESPACES, sys.executable, "-m", "tests.roots.enter", str(order)], log)

    def says(self, script: str) -> str:
        """What a script prints.

        Raises:
            SystemExit: It failed.
        """
        log = self._scratch / "says.log"
        status = self.run(script, log)
        text = log.read_text(errors="replace").strip()
        if status:
            raise SystemExit(f"run {script!r} in the root: it ended with {status}\n{text}")
        return text


def _run(command: Sequence[str], log: pathlib.Path | None) -> int:
    """Runs a command to its end; when this program is ended meanwhile, all that the command started is gone first."""
    with contextlib.ExitStack() as unwind:
        output = unwind.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                # --kill-child: the namespace's first process dies with `unshare`, and with it all others.
                process.kill()
                process.wait()


@contextlib.contextmanager
def scratch_folder(below: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder that is removed again, also when a signal ends this program."""

    def leave(number: int, _: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # a second one must not stop the tidying
        raise SystemExit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, leave)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="coldsnap-root.", dir=below))
    try:
        yield folder
    finally:
        # Nothing is mounted in it for this process, and never was.
        _remove(folder)


def _remove(folder: pathlib.Path) -> None:
    # The last process of a namespace may still be on its way out, and hold a mount point for a moment.
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(0.1)
    raise SystemExit(f"remove {folder}: it is still there; remedy: see what holds it, and remove it")
