"""Bytes that a load left behind and that no walked tensor explains: then there is a hiding place that the walk missed.

On a GPU the allocator knows every block that is in use. Those that were not there before the load, less the storages of
walked tensors, are memory whose content a restore would not bring back. In host memory nobody counts; there the sign is
that tensors shrink between loading and the end of post-processing, because their bytes went where no tensor has them.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from coldsnap.adapters.walker import Walked

# Work space that kernels take on the way and keep, and what rounding adds to blocks; weights that matter are larger.
SMALL_BYTES = 1 << 20
_ROUNDING_BYTES = 512  # of torch's caching allocator


class Hidden(NamedTuple):
    """A range of device memory in use that no walked tensor explains: ``address`` and ``nbytes``."""

    address: int
    nbytes: int


def held(device: torch.device | str, others: Mapping[int, int] | None = None) -> dict[int, int]:
    """Blocks in use on a device, by address, in bytes; empty for host memory, whose allocator tells nothing.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        others: Address and bytes of what an allocator other than torch's has given out, such as an engine's own. Of what
            it gave to torch, torch knows which blocks are in use.
    """
    found = dict(others or {})
    where = torch.device(device)
    if where.type != "cuda":
        return found
    index = torch.cuda.current_device() if where.index is None else where.index
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:  # they hold nothing between two calls
        clear()
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] == index:
            found.pop(segment["address"], None)
            found.update(_blocks(segment))
    return found


def _blocks(segment: Mapping[str, object]) -> Iterable[tuple[int, int]]:
    address = int(segment["address"])  # type: ignore[call-overload]
    for block in segment["blocks"]:  # type: ignore[attr-defined]
        if block["state"] == "active_allocated":
            yield address, int(block.get("requested_size") or block["size"])
        address += int(block["size"])


def within(blocks: Mapping[int, int], ranges: Mapping[int, int]) -> dict[int, int]:
    """The blocks that begin in one of the ranges, which don't overlap; both by address, in bytes."""
    begins = sorted(ranges)
    found = {}
    for address, nbytes in blocks.items():
        at = bisect.bisect_right(begins, address) - 1
        if at >= 0 and address < begins[at] + ranges[begins[at]]:
            found[address] = nbytes
    return found


def hidden(before: Mapping[int, int], after: Mapping[int, int], walked: Walked) -> list[Hidden]:
    """What a load left in use and no walked tensor explains, largest first.

    Args:
        before: As `held` said before the load.
        after: The same at its end.
        walked: The model that was loaded.
    """
    known = _merged(_storages(walked))
    found = []
    for address, nbytes in after.items():
        if before.get(address) != nbytes:
            found += [rest for rest in _uncovered(address, nbytes, known) if rest.nbytes >= _ROUNDING_BYTES]
    return sorted(found, key=lambda rest: -rest.nbytes)


def vanished_bytes(loaded: Walked, final: Walked) -> int:
    """Bytes of storages that a model had after loading and has no more at the end of post-processing; 0 if it grew."""
    return max(0, _total(loaded) - _total(final))


def _total(walked: Walked) -> int:
    return sum(nbytes for _, nbytes in set(_storages(walked)))


def _storages(walked: Walked) -> Iterable[tuple[int, int]]:
    for slot in walked.slots.values():
        storage = slot.tensor.untyped_storage()
        if storage.nbytes():
            yield storage.data_ptr(), storage.nbytes()


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``(begin, end)`` in order; those that touch are one."""
    found: list[tuple[int, int]] = []
    for begin, nbytes in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], begin + nbytes)
        else:
            found.append((begin, begin + nbytes))
    return found


def _uncovered(address: int, nbytes: int, known: list[tuple[int, int]]) -> Iterable[Hidden]:
    """The parts of a block outside all of the merged ranges."""
    at, end = address, address + nbytes
    first = bisect.bisect_right(known, (at, end))
    for begin, stop in known[max(0, first - 1) :]:
        if begin >= end:
            break
        if begin > at:
            yield Hidden(at, begin - at)
        at = max(at, stop)
    if at < end:
        yield Hidden(at, end - at)
