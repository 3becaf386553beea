"""What a process leaves that has to be killed: nothing that runs, and no shared memory of its own."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

import pytest

from bench.startup import process

# Makes shared memory as an engine does, also in a process of its own, maps what it is given, and hears no signal. What
# would remove it ends before it.
_STUBBORN = """
import multiprocessing.shared_memory, os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
given = multiprocessing.shared_memory.SharedMemory(sys.argv[1])
child = os.fork()
made = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
print(made.name, flush=True)
time.sleep(600)
"""


def test_a_killed_process_leaves_no_shared_memory_but_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.1)
    given = shared_memory.SharedMemory(create=True, size=4096)
    try:
        command = [sys.executable, "-c", _STUBBORN, given.name]
        with process.Process(command, os.environ) as running:
            until = time.monotonic() + 60
            while len(running.lines) < 2 and running.alive and time.monotonic() < until:
                time.sleep(0.01)
            made = [Path("/dev/shm", text) for _, text in running.lines]
            assert len(made) == 2, running.lines
            assert all(path.exists() for path in made)
            shared = shared_memory.SharedMemory(made[0].name)
        assert not running.alive
        assert [path for path in made if path.exists()] == [made[0]]  # which we have, too
        assert Path("/dev/shm", given.name).exists()
        shared.close()
        shared.unlink()
    finally:
        resource_tracker.ensure_running()
        given.close()
        given.unlink()


def test_a_mapping_is_told_from_others_by_its_folder() -> None:
    mine = shared_memory.SharedMemory(create=True, size=4096)
    try:
        assert mine.name in process._mapped_by([os.getpid()])
        assert process._mapped_by([os.getpid()]) <= process._shared_memory()
    finally:
        mine.close()
        mine.unlink()
    assert mine.name not in process._mapped_by([os.getpid()])
