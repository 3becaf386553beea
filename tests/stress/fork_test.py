"""A process that has restored, or is restoring, forks: child and parent restore on, and both come to their end."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from coldsnap import _native
from coldsnap.tensors import native_specs
from tests import seeds
from tests.stress import forking

SEED = seeds.chosen(20240607)
# Far beyond what a program takes: what is still running then never ends.
HANGS_AFTER_S = 100
# What Python itself (3.12 on) says of each fork beside a thread.
QUIET = ("-W", "ignore:This process:DeprecationWarning")


@pytest.fixture
def artifact(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "artifact"
    tensors = {"w": forking.content((8 << 20) + 5)}
    _native.write_artifact(str(path), native_specs(tensors), "{}", "{}", "{}")
    return path


@pytest.mark.parametrize("program", forking.PROGRAMS)
def test_forked(program: str, artifact: pathlib.Path) -> None:
    command = [sys.executable, *QUIET, forking.__file__, program, str(artifact), str(SEED)]
    # A process group of its own, so that what hangs goes with all its children.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as running:
        try:
            _, printed = running.communicate(timeout=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            pytest.fail(f"{program} hangs (seed {SEED}): {running.communicate()[1]}")
    assert running.returncode == 0, printed
    assert printed == ""  # the children's too: a program that forks shows its users nothing of ours
