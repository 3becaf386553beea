"""The command as a process of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys


def coldsnap(folder: pathlib.Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command in ``folder``, with ``data`` on its standard input."""
    command = [sys.executable, "-m", "coldsnap.cli", *arguments]
    return subprocess.run(command, cwd=folder, input=data, capture_output=True, check=False, timeout=60)
