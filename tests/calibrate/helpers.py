"""Runs the calibration as a user does: another process, its flags, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SMALL = ("--bytes=8MiB", "--samples=2", "--device=host")


def command(*flags: str) -> list[str]:
    """Give the command line of `coldsnap calibrate` in this interpreter."""
    return [sys.executable, "-m", "coldsnap.cli", "calibrate", *flags]


def without_matplotlib(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run it where matplotlib can't be imported."""
    code = "import sys; sys.modules['matplotlib'] = None; from coldsnap import cli; sys.exit(cli.main(sys.argv))"
    return _run([sys.executable, "-c", code, "calibrate", *flags], {})


def calibrate(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return _run(command(*flags), environment)


def _run(line: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, env=dict(os.environ, **environment), capture_output=True, text=True, check=False, timeout=240
    )


def left_in(folder: Path) -> list[str]:
    """List all that is in a folder, however deep."""
    return sorted(str(entry.relative_to(folder)) for entry in folder.rglob("*"))
