"""The engine's allocator of sleep mode, as a stand-in has it: what is asleep, what goes, and what comes back once."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest

from coldsnap import errors
from coldsnap.adapters.vllm import pool


@dataclasses.dataclass
class Allocation:
    handle: tuple[int, int, int, int]
    tag: str
    is_asleep: bool = False


@dataclasses.dataclass
class OldAllocation:
    """Of a version that does not tell what is asleep."""

    handle: tuple[int, int, int, int]
    tag: str


class FakeWorker:
    """A worker whose ``wake_up`` maps all that it is told, as vLLM 0.26 does: what is there already, too, which fails."""

    def __init__(self, allocations: dict[int, Any]) -> None:
        self.allocations = allocations
        self.woken: list[list[str]] = []

    def wake_up(self, tags: list[str] | None = None) -> None:
        for allocation in self.allocations.values():
            if tags is None or allocation.tag in tags:
                assert allocation.is_asleep, "mapped twice"
                allocation.is_asleep = False
        self.woken.append(sorted(tags or ["everything"]))


def allocations(kind: type[Any] = Allocation) -> dict[int, Any]:
    sizes = {0x1000: ("weights", 100), 0x2000: ("kv_cache", 200), 0x3000: ("weights", 300)}
    return {address: kind((0, nbytes, address, 7), tag) for address, (tag, nbytes) in sizes.items()}


def install(monkeypatch: pytest.MonkeyPatch, found: dict[int, Any], **more: Any) -> list[Any]:
    """Put a stand-in of the engine's module where it would be; what was unmapped."""
    unmapped: list[Any] = []
    instance = types.SimpleNamespace(pointer_to_data=found, **more)
    module = types.SimpleNamespace(
        CuMemAllocator=types.SimpleNamespace(instance=instance), unmap_and_release=unmapped.append
    )
    monkeypatch.setitem(pool.sys.modules, pool._MODULE, module)
    return unmapped


def sleep(found: dict[int, Any]) -> None:
    for allocation in found.values():
        allocation.is_asleep = True


def test_without_sleep_mode_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(pool.sys.modules, pool._MODULE, raising=False)
    worker = FakeWorker({})
    assert pool.blocks() == {} and not pool.is_asleep(worker) and not pool.wake(worker)
    assert "started without sleep mode" in pool.why_not_release(worker)


def test_blocks_are_the_weights_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocations()
    install(monkeypatch, found)
    assert pool.blocks() == {0x1000: 100, 0x3000: 300}
    found[0x1000].is_asleep = True
    assert pool.blocks() == {0x3000: 300}
    assert pool.is_asleep(FakeWorker(found))


def test_release_gives_the_weights_back_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocations()
    unmapped = install(monkeypatch, found)
    assert pool.why_not_release(FakeWorker(found)) == ""
    assert pool.release() == 400
    assert unmapped == [(0, 100, 0x1000, 7), (0, 300, 0x3000, 7)]
    assert [each.is_asleep for each in found.values()] == [True, False, True]
    assert pool.why_not_release(FakeWorker(found)) == "its weights are asleep already"


def test_release_by_the_engine_s_own_way_where_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded: list[Any] = []
    unmapped = install(monkeypatch, allocations(), discard=discarded.append)
    assert pool.release() == 400
    assert discarded == [("weights",)] and not unmapped


@pytest.mark.parametrize("tags", [None, ["kv_cache"], ["weights", "kv_cache"]])
def test_what_we_woke_the_engine_does_not_map_again(monkeypatch: pytest.MonkeyPatch, tags: list[str] | None) -> None:
    found = allocations()
    install(monkeypatch, found)
    worker = FakeWorker(found)
    sleep(found)
    assert pool.wake(worker) and not pool.is_asleep(worker)
    worker.wake_up(tags=tags)
    worker.wake_up(tags=["weights"])
    assert worker.woken == [["weights"], ["kv_cache"]]
    sleep(found)  # and the next time
    assert pool.wake(worker)
    worker.wake_up()
    assert worker.woken == [["weights"], ["kv_cache"]] * 2


def test_what_the_user_woke_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocations()
    install(monkeypatch, found)
    worker = FakeWorker(found)
    sleep(found)
    worker.wake_up(tags=["weights"])
    assert not pool.wake(worker)
    assert worker.woken == [["weights"]]


def test_a_version_that_can_t_tell_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocations(OldAllocation)
    install(monkeypatch, found)
    worker: Any = FakeWorker(found)
    assert not pool.is_asleep(worker)
    worker._sleep_saved_buffers = {"scale": 1.0}
    with pytest.raises(errors.RouteUnavailableError, match=r'call wake_up\(tags=\["weights"\]\) before'):
        pool.wake(worker)
    assert "all at once" in pool.why_not_release(worker)
    worker._sleep_saved_buffers = {}
    assert not pool.wake(worker)
