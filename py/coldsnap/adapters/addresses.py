"""Integers that are addresses: what native code left there is a handle, and means nothing in another process.

Copying one gives the engine a pointer of a process that has ended. An engine's adapter names the handles it knows; this
finds the others, since no weight is a number that happens to be an address of this very process.
"""

from __future__ import annotations

import bisect
import functools
from pathlib import Path

import torch

_MOST = 4096  # elements; an array of pointers has one for each expert, shard or layer
_LEAST_ADDRESS = 1 << 20  # no mapping is below
_MAPS = Path("/proc/self/maps")


class Addresses:
    """The addresses that are mapped in this process, as of the first question."""

    def first_in(self, tensor: torch.Tensor) -> int | None:
        """The first element of a tensor that is a mapped address; None where none is, or it can't hold any."""
        if tensor.dtype not in (torch.int64, torch.uint64) or not 0 < tensor.numel() <= _MOST:
            return None
        values = tensor.detach().reshape(-1).tolist()
        return next((value for value in values if self.holds(value)), None)

    def holds(self, value: int) -> bool:
        """Whether a number is a mapped address."""
        if value < _LEAST_ADDRESS:
            return False
        begins, ends = self._mapped
        at = bisect.bisect_right(begins, value) - 1
        return at >= 0 and value < ends[at]

    @functools.cached_property
    def _mapped(self) -> tuple[list[int], list[int]]:
        lines = [line.split(" ", 1)[0].split("-") for line in _MAPS.read_text().splitlines()]
        return [int(begin, 16) for begin, _ in lines], [int(end, 16) for _, end in lines]
