"""What `_native.limits` says of this very machine, against a reading in Python."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

import pytest

from coldsnap import _native
from tests.limits.groups import group_folders, numbers

_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "MV2_COMM_WORLD_LOCAL_SIZE")


def quotas() -> list[float]:
    version, folders = group_folders("cpu")
    found = []
    for folder in folders:
        if version == 1:
            pair = numbers(folder / "cpu.cfs_quota_us") + numbers(folder / "cpu.cfs_period_us")
        else:
            pair = numbers(folder / "cpu.max")
        if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
            found.append(pair[0] / pair[1])
    return found


def memory_limits() -> list[int]:
    _, folders = group_folders("memory")
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    found = [number for folder in folders for name in names for number in numbers(folder / name)]
    return [number for number in found if number is not None and number < 1 << 62]


def test_the_numbers_are_those_that_python_reads() -> None:
    found = _native.limits()
    print(found)
    if found["notes"]:
        pytest.skip(f"this machine does not show all of its limits: {found['notes']}")
    affinity = len(os.sched_getaffinity(0))
    assert found["affinity_cpus"] == affinity
    assert found["cpu_quota"] == pytest.approx(min(quotas())) if quotas() else found["cpu_quota"] is None
    assert found["usable_cpus"] == max(1, math.ceil(min([affinity, *quotas()])))
    if memory_limits():
        assert 0 <= found["memory_headroom_bytes"] <= min(memory_limits())
        assert Path(found["memory_source"]).is_file()
    else:
        assert (found["memory_headroom_bytes"], found["memory_source"]) == (None, "")


def test_the_mask_of_the_calling_thread_counts() -> None:
    mask = os.sched_getaffinity(0)
    seen = []

    def work() -> None:
        os.sched_setaffinity(0, {min(mask)})
        seen.append(_native.limits()["usable_cpus"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
    assert _native.limits()["affinity_cpus"] == len(mask)


def test_ranks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _RANKS:
        monkeypatch.delenv(name, raising=False)
    before = _native.limits()
    assert (before["local_ranks"], before["cpus_per_rank"]) == (1, before["usable_cpus"])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = _native.limits()
    assert (found["local_ranks"], found["local_ranks_source"]) == (2, "LOCAL_WORLD_SIZE")
    assert found["cpus_per_rank"] == max(1, found["usable_cpus"] // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "two")
    assert any("LOCAL_WORLD_SIZE" in note for note in _native.limits()["notes"])
