"""The tensors of a capture: what each is, on which device they all are, and what keeps their memory alive.

numpy arrays and torch tensors are described as they are. Whatever else speaks DLPack or the CUDA array interface is
looked at through torch, or through numpy where it lies in host memory: as views of the same memory, never as copies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap import errors
from coldsnap.tensors import TensorView, specs_of, views_of

# Of DLPack's device types: kDLCPU and kDLCUDAHost.
_DLPACK_HOST = (1, 3)


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
    seen = _visible(tensors)
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


def _visible(tensors: Any) -> Any:
    """The mapping with foreign tensors as torch or numpy sees them; one object stays one object."""
    if not isinstance(tensors, Mapping):
        return tensors  # `views_of` says what is wrong with it
    known: dict[int, Any] = {}
    found = {}
    for name, tensor in tensors.items():
        if id(tensor) not in known:
            known[id(tensor)] = _adopted(name, tensor)
        found[name] = known[id(tensor)]
    return found


def _adopted(name: Any, tensor: Any) -> Any:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if (numpy and isinstance(tensor, numpy.ndarray)) or (torch and isinstance(tensor, torch.Tensor)):
        return tensor
    if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        return _from_dlpack(name, tensor, numpy, torch)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _from_cuda_array(name, tensor, torch)
    return tensor  # refused by `views_of`, in its words


def _from_dlpack(name: Any, tensor: Any, numpy: Any, torch: Any) -> Any:
    kind = int(tensor.__dlpack_device__()[0])
    if torch is None and (numpy is None or kind not in _DLPACK_HOST):
        needed = "numpy" if kind in _DLPACK_HOST else "torch"
        raise _refused(name, tensor, f"only {needed} can look at its memory, and it isn't loaded", f"import {needed}")
    try:
        return torch.from_dlpack(tensor) if torch is not None else numpy.from_dlpack(tensor)
    except (RuntimeError, TypeError, ValueError, BufferError) as cause:
        raise _refused(name, tensor, f"it can't be seen through DLPack: {cause}", "give a torch tensor") from cause


def _from_cuda_array(name: Any, tensor: Any, torch: Any) -> Any:
    if torch is None:
        raise _refused(name, tensor, "only torch can look at its memory, and it isn't loaded", "import torch")
    interface = tensor.__cuda_array_interface__
    address = interface["data"][0]
    try:
        for index in range(torch.cuda.device_count()):
            seen = torch.as_tensor(tensor, device=f"cuda:{index}")
            if seen.data_ptr() == address:  # elsewhere it is a copy
                break
        else:
            raise _refused(name, tensor, f"no CUDA device has its address {address:#x}", "give a torch tensor")
    except (RuntimeError, TypeError, ValueError) as cause:
        if isinstance(cause, errors.Error):
            raise
        raise _refused(name, tensor, f"torch can't look at its memory: {cause}", "give a torch tensor") from cause
    if interface.get("stream") is not None:  # what fills it may still be running there
        torch.cuda.synchronize(seen.device)
    return seen


def _refused(name: Any, tensor: Any, why: str, remedy: str) -> errors.RequestInvalidError:
    kind = type(tensor)
    return errors.RequestInvalidError(
        f"use tensor {name!r}: it is a {kind.__module__}.{kind.__qualname__}, and {why}", remedy=remedy
    )
