"""Whether weights are still what they were: sums over the pieces of each storage, at the speed of its memory.

No digest: nobody is kept from making other bytes of the same sums. What an engine does to its own weights is seen: an
update, a discarded page, experts that changed places. A sum over a whole storage would not see the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

PIECE_BYTES = 64 << 10
_WORD_BYTES = 8


def of(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """What stands for the bytes of each storage, under the first name that has it.

    Args:
        tensors: By name. Their storages are read whole, on the current stream of their device.
    """
    first: dict[tuple[torch.device, int], str] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.nbytes():
            first.setdefault((tensor.device, storage.data_ptr()), name)
    with torch.no_grad():
        return {name: _of_storage(tensors[name]) for name in first.values()}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names under which two answers of `of` differ, in order."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _of_storage(tensor: torch.Tensor) -> str:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    whole = flat.numel() // PIECE_BYTES * PIECE_BYTES
    pieces = flat[:whole].view(torch.int64).view(-1, PIECE_BYTES // _WORD_BYTES).sum(1)
    found = hashlib.sha256(f"{flat.numel()}:".encode())
    for part in (pieces, flat[whole:]):
        found.update(part.cpu().numpy().tobytes())
    return found.hexdigest()
