"""vLLM's allocator of sleep mode: the memory that it calls weights, whether that is there, how it goes and comes back.

Beside `coldsnap.adapters.vllm.compat` and `engine`, the third place that knows names of vLLM which change. Known by their
source: 0.26, 0.32. Where the engine runs without that allocator, there is no such memory and nothing sleeps.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from coldsnap import errors
from coldsnap.adapters import coverage

_WEIGHTS = "weights"
_MODULE = "vllm.device_allocator.cumem"
_MARK = "_coldsnap_leaves_out_what_is_awake"


def blocks() -> dict[int, int]:
    """What the driver has given for weights and has not got back, by address, in bytes."""
    return {address: int(each.handle[1]) for address, each in _weights().items() if not _is_asleep(each)}


def in_use(device: torch.device) -> dict[int, int]:
    """What of that torch has in use, by address, in bytes: weights, and what the engine makes beside them later."""
    given = blocks()
    return coverage.within(coverage.held(device, given), given) if given else {}


def is_asleep(worker: Any) -> bool:
    """Whether the weights' memory, or a part of it, was given back."""
    found = _weights().values()
    if all(hasattr(each, "is_asleep") for each in found):
        return any(map(_is_asleep, found))
    # Such a version keeps this from a sleep of level 2 to the next wake_up, and nothing else that tells.
    return bool(getattr(worker, "_sleep_saved_buffers", None))


def wake(worker: Any) -> bool:
    """Have the engine map the weights' memory again where it sleeps; what is in it then means nothing.

    Returns:
        Whether it was asleep.
    Raises:
        RouteUnavailableError: This version can't tell what of its memory is asleep.
    """
    if not is_asleep(worker):
        return False
    if not all(hasattr(each, "is_asleep") for each in _weights().values()):
        raise errors.RouteUnavailableError(
            "wake the engine's weights: this version of vLLM can't tell what of its memory is asleep",
            remedy='call wake_up(tags=["weights"]) before',
        )
    worker.wake_up(tags=[_WEIGHTS])
    _leave_out_what_is_awake(worker)
    return True


def why_not_release(worker: Any) -> str:
    """Why the weights' memory can't be given back by itself; empty if it can."""
    found = _weights().values()
    if not found:
        return "the engine was started without sleep mode (--enable-sleep-mode), so its weights can't be given back"
    if not all(hasattr(each, "is_asleep") for each in found):
        return "this version of vLLM gives nothing back but all at once: sleep(level=2) does so"
    return "its weights are asleep already" if any(map(_is_asleep, found)) else ""


def release() -> int:
    """Give the weights' memory back to the driver, as a sleep of level 2 does, and keep its addresses; bytes given back.

    Nothing may be running that uses it; `why_not_release` says whether it can be.
    """
    given = blocks()
    allocator = _allocator()
    discard = getattr(allocator, "discard", None)
    if discard is not None:
        discard((_WEIGHTS,))
        return sum(given.values())
    for each in _weights().values():
        sys.modules[_MODULE].unmap_and_release(each.handle)
        each.is_asleep = True
    return sum(given.values())


def _allocator() -> Any:
    return getattr(getattr(sys.modules.get(_MODULE), "CuMemAllocator", None), "instance", None)


def _allocations() -> Mapping[int, Any]:
    """All that the allocator has got of the driver, by address."""
    found: Mapping[int, Any] = getattr(_allocator(), "pointer_to_data", {})
    return found


def _weights() -> dict[int, Any]:
    return {address: each for address, each in _allocations().items() if each.tag == _WEIGHTS}


def _is_asleep(allocation: Any) -> bool:
    return bool(getattr(allocation, "is_asleep", False))


def _leave_out_what_is_awake(worker: Any) -> None:
    """From now on, have the engine's own ``wake_up`` do what is left to do: in 0.26 it maps all once more, which fails."""
    wake_up = worker.wake_up
    if hasattr(wake_up, _MARK):
        return

    @functools.wraps(wake_up)
    def rest(tags: Sequence[str] | None = None) -> None:
        asleep = sorted({each.tag for each in _allocations().values() if _is_asleep(each)})
        chosen = [tag for tag in asleep if tags is None or tag in tags]
        if chosen:
            wake_up(tags=chosen)

    setattr(rest, _MARK, True)
    worker.wake_up = rest
