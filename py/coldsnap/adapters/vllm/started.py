"""What the loader of this worker did with the engine's model, for those who ask later: probation, and the worker itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class Started(NamedTuple):
    """What a loader did.

    Attributes:
        what: ``captured`` or ``restored``.
        artifact_root: To or from which artifact.
        path: The artifact's folder.
        shard: The shard of this rank.
        identity: The artifact's.
    """

    what: str
    artifact_root: str
    path: str
    shard: str
    identity: dict[str, Any]


_started: list[Started] = []
_addresses: dict[str, int] = {}
_in_use: dict[int, int] = {}


def note(started: Started, model: torch.nn.Module, in_use: Mapping[int, int]) -> None:
    """For the loader: what it did with the engine's model, in this worker.

    Args:
        started: What.
        model: The finished model.
        in_use: Blocks of the memory that a sleep takes away as weights, by address, in bytes.
    """
    _started[:] = [started]
    _addresses.clear()
    _addresses.update(_addresses_of(model))
    _in_use.clear()
    _in_use.update(in_use)


def of_this_worker() -> Started | None:
    """What its loader did; None where it loaded normally."""
    return _started[0] if _started else None


def moved(model: torch.nn.Module) -> list[str]:
    """Parameters and buffers that are not where they were at the end of loading, by name."""
    now = _addresses_of(model)
    return [name for name, address in _addresses.items() if now.get(name) != address]


def in_use() -> dict[int, int]:
    """The blocks that `note` was told of."""
    return dict(_in_use)


def _addresses_of(model: torch.nn.Module) -> dict[str, int]:
    """Parameters and buffers are enough: what hangs elsewhere is found by the walk, which takes longer than a start may."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.data_ptr() for name, tensor in tensors if not tensor.is_meta}
