"""A signal at any stage: the folder is gone, the exit code says which signal, no traceback, no results."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.calibrate.helpers import command, left_in

# What the run has done when the signal comes; each is seen in the file system, so none depends on a clock.
STAGES: dict[str, Callable[[Path], bool]] = {
    "raw writes": lambda folder: any(folder.glob("*/raw-write")),
    "blob": lambda folder: any(folder.glob("*/artifact")),
    "restores": lambda folder: any(folder.glob("*/artifact/artifact.json")),
}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_cleans_up(tmp_path: Path, stage: str, signum: signal.Signals) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    flags = ("--bytes=64MiB", "--samples=8", "--device=host", f"--path={drive}", f"--output={tmp_path / 'out'}")
    with subprocess.Popen(
        command(*flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test runner in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        until(lambda: STAGES[stage](drive) or process.poll() is not None)
        os.kill(process.pid, signum)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert stderr == f"coldsnap calibrate: interrupted by {signum.name}; the blob is removed, no results were written\n"
    assert left_in(tmp_path) == ["drive"]


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    flags = ("--bytes=64MiB", "--samples=3", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}")
    with subprocess.Popen(command(*flags), stdout=subprocess.DEVNULL) as process:
        until(lambda: STAGES["blob"](tmp_path) or process.poll() is not None)
        process.kill()
    assert len(list(tmp_path.glob("coldsnap-calibrate.*"))) == 1
    flags = ("--bytes=2MiB", "--samples=1", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}")
    assert subprocess.run(command(*flags), stdout=subprocess.DEVNULL, check=False, timeout=120).returncode == 0
    assert left_in(tmp_path) == ["results.json"]


def until(happened: Callable[[], bool]) -> None:
    """Wait until `happened`, at most two minutes."""
    for _ in range(24000):
        if happened():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen within two minutes")
