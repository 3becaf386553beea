"""The tensors of a capture: what each is, on which device they all are, and what keeps their memory alive.

numpy arrays and torch tensors are described as they are, all else as `coldsnap.foreign` sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap import errors, foreign
from coldsnap.tensors import TensorView, specs_of, views_of


@dataclass(frozen=True, slots=True)
class Sources:
    """What a capture reads.

    Attributes:
        rows: As `coldsnap.tensors.specs_of` has them.
        device: ``host`` or ``cuda:N``.
        tensors: The tensors, or the views through which they are looked at; they keep the memory alive.
    """

    rows: list[tuple[Any, ...]]
    device: str
    tensors: Mapping[str, Any]


def sources_of(
    tensors: Any, roles: Mapping[str, str] | None = None, attrs: Mapping[str, Sequence[str]] | None = None
) -> Sources:
    """Describe the tensors of a mapping.

    Args:
        tensors: Name to tensor.
        roles: By name, what a tensor is to its engine.
        attrs: By name, ``key=value`` strings that a restore compares.
    Raises:
        RequestInvalidError: It is no mapping, a tensor is refused, the tensors are on several devices, or a role or attr
            is of no tensor.
    """
    seen = foreign.visible(tensors)
    views = views_of(seen)
    roles, attrs = roles or {}, attrs or {}
    unknown = next((name for name in (*roles, *attrs) if name not in views), None)
    if unknown is not None:
        raise errors.RequestInvalidError(
            f"capture {len(views)} tensors: {unknown!r} has a role or attrs, and is none of them",
            remedy="give roles and attrs to captured tensors only",
        )
    rows = [(*row[:-2], roles.get(row[0], ""), sorted(attrs.get(row[0], ()))) for row in specs_of(views)]
    return Sources(rows, _one_device(views.values()), seen)


def _one_device(views: Iterable[TensorView]) -> str:
    with_bytes = [view for view in views if view.storage_nbytes > 0]
    first = next(iter(with_bytes), None)
    if first is None:
        return "host"
    other = next((view for view in with_bytes if view.device != first.device), None)
    if other is not None:
        raise errors.RequestInvalidError(
            f"capture {len(with_bytes)} tensors: {first.name!r} is on {first.device} and {other.name!r} on "
            f"{other.device}, and a shard is of one device",
            remedy="capture one device at a time, each under an identity of its own",
        )
    return first.device
