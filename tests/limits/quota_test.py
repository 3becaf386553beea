"""A process inside a real quota: how many processors it sees, and that time it was held back is counted.

Needs root and a cpu controller that new groups get; skips with the reason where that is not so.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coldsnap import _native
from coldsnap.tensors import native_specs
from tests.limits.groups import group_folders

# Far beyond what it takes: what is still running then was never held back.
HANGS_AFTER_S = 50

# Joins a group below the one with the quota, so the tighter parent is what counts. Then it keeps more processors busy
# than it may have, until the kernel has counted that it held them back. The workers end with it, however it ends.
_INSIDE = r"""
import json, os, subprocess, sys, time
group, busy = sys.argv[1], int(sys.argv[2])
with open(group + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
from coldsnap import _native
limits, before = _native.limits(), _native.throttled_seconds()
work = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
workers = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(busy)]
try:
    while _native.throttled_seconds() <= before:
        time.sleep(0.01)
finally:
    for worker in workers:
        worker.kill()
        worker.wait()
print(json.dumps({"limits": limits, "before": before, "after": _native.throttled_seconds()}))
"""

# The same, with restores in the place of the busy workers; two of their threads hash at the same time.
_RESTORES_INSIDE = r"""
import json, os, sys
group, path = sys.argv[1:]
with open(group + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
import numpy
import coldsnap
destination = numpy.zeros(64 << 20, numpy.uint8)
parent, said = os.getppid(), []
while not said and os.getppid() == parent:
    receipt = coldsnap.hydrate(path, {"w": destination}, backend="buffered", read_threads=2)
    said = [reason["detail"] for reason in receipt.reasons if reason["code"] == "throttled"]
print(json.dumps(said))
"""


def group_with_quota(cpus: float) -> Path:
    """A new group that has a quota; skips where this machine lets nobody make one."""
    version, folders = group_folders("cpu")
    refused = "no group of the cpu controller can be seen"
    for parent in folders:  # in version 2 a group that has processes hands nothing down, but one above it may
        group = parent / f"coldsnap-test-{os.getpid()}"
        try:
            group.mkdir()
            try:
                set_quota(group, version, cpus)
            except OSError:
                group.rmdir()
                raise
        except OSError as error:
            refused = f"make a group with a quota of {cpus} processors: {error}"
        else:
            return group
    pytest.skip(refused)


def set_quota(group: Path, version: int, cpus: float) -> None:
    name, text = "cpu.cfs_quota_us", f"{round(cpus * 100_000)}"
    if version == 2:
        name, text = "cpu.max", f"{text} 100000"
    with open(group / name, "r+") as file:  # never made: a file that is not there means that the controller is off
        file.write(text)


def run_inside(cpus: float, program: str, argument: str) -> Any:
    """Run a program that joins the group which its first argument names, below one with a quota; what it printed."""
    outer = group_with_quota(cpus)
    inner = outer / "inner"
    try:
        inner.mkdir()
        command = [sys.executable, "-c", program, str(inner), argument]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)
    finally:
        for group in (inner, outer):
            group.rmdir()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    return found


def test_a_process_inside_a_quota_sees_it_and_how_long_it_was_held_back() -> None:
    cores = _native.limits()["usable_cpus"]
    cpus = 2 if cores > 2 else cores / 2
    print(f"{cores} usable processors, a quota of {cpus}")
    found = run_inside(cpus, _INSIDE, str(math.ceil(cpus) + 1))
    assert found["limits"]["cpu_quota"] == pytest.approx(cpus)
    assert found["limits"]["usable_cpus"] == math.ceil(cpus)
    assert found["after"] > found["before"]


def test_a_restore_that_a_quota_held_back_says_so(tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    tensors = {"w": np.zeros(64 << 20, np.uint8)}
    _native.write_artifact(str(path), native_specs(tensors), "{}", "{}", "{}")
    for detail in run_inside(0.2, _RESTORES_INSIDE, str(path)):
        assert "a quota of processor time held this container back for" in detail
