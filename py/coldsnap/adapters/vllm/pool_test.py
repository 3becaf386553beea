"""The engine's allocator of sleep mode, as a stand-in has it: what is asleep, what goes, and what comes back once."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest
import torch

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


def fake_account(monkeypatch: pytest.MonkeyPatch, *segments: dict[str, Any]) -> None:
    """Put a stand-in of torch's account of device memory where the real one would be, as torch 2.11 to 2.13 give it."""
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: list(segments))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)


def segment(address: int, *blocks: tuple[str, int], device: int = 0) -> dict[str, Any]:
    """Of torch's account: blocks by their state and bytes, one behind the other; each is asked for with 12 bytes less."""
    held = [{"state": state, "size": nbytes, "requested_size": nbytes - 12} for state, nbytes in blocks]
    return {"device": device, "address": address, "blocks": held}


def test_in_use_is_what_torch_has_given_out_of_the_weights_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator's blocks are whole segments of torch's, in which only some of the bytes are anybody's."""
    install(monkeypatch, allocations())
    fake_account(
        monkeypatch,
        segment(0x1000, ("active_allocated", 40), ("inactive", 20), ("active_allocated", 40)),
        segment(0x2000, ("active_allocated", 200)),  # the KV cache
        segment(0x3000, ("active_pending_free", 100), ("active_allocated", 200)),
        segment(0x9000, ("active_allocated", 64)),  # of no allocator of the engine's
        segment(0x3000 + 8, ("active_allocated", 64), device=1),  # an address of another card's
    )
    found = pool.in_use(torch.device("cuda:0"))
    assert found == {0x1000: 28, 0x1000 + 60: 28, 0x3000 + 100: 188}


def test_in_use_counts_whole_what_torch_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, allocations())
    fake_account(monkeypatch, segment(0x3000, ("active_allocated", 300)))
    assert pool.in_use(torch.device("cuda:0")) == {0x1000: 100, 0x3000: 288}


def test_in_use_is_nothing_of_weights_that_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocations()
    install(monkeypatch, found)
    fake_account(monkeypatch, segment(0x1000, ("active_allocated", 100)), segment(0x3000, ("active_allocated", 300)))
    found[0x1000].is_asleep = True
    assert pool.in_use(torch.device("cuda:0")) == {0x3000: 288}
    sleep(found)
    assert pool.in_use(torch.device("cuda:0")) == {}


def test_without_sleep_mode_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot takes a while, and would be of all that the process has."""
    asked: list[str] = []
    monkeypatch.delitem(pool.sys.modules, pool._MODULE, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: asked.append("snapshot") or [])
    assert pool.in_use(torch.device("cuda:0")) == {}
    assert asked == []


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
