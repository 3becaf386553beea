"""Tensors of other frameworks: whatever speaks DLPack or the CUDA array interface, seen through numpy or torch.

As views of the same memory, never as copies. In host memory numpy is enough; what is on a GPU is seen through torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from coldsnap import errors

# Of DLPack's device types: kDLCPU and kDLCUDAHost.
_DLPACK_HOST = (1, 3)


def visible(tensors: Any, *, writing: bool = False) -> Any:
    """The mapping with foreign tensors as torch or numpy sees them; one object stays one object.

    Args:
        tensors: Name to tensor; anything else is given back, for `coldsnap.tensors.views_of` to refuse.
        writing: Whether they are to be written. Then only what its owner lets be written is taken: in host memory numpy
            heeds that, and torch does not.
    Raises:
        RequestInvalidError: A tensor can't be looked at, or is not to be written; the message has its name and why.
    """
    if not isinstance(tensors, Mapping):
        return tensors
    known: dict[int, Any] = {}
    found = {}
    for name, tensor in tensors.items():
        if id(tensor) not in known:
            known[id(tensor)] = _adopted(name, tensor, writing)
        found[name] = known[id(tensor)]
    return found


def _adopted(name: Any, tensor: Any, writing: bool) -> Any:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if (numpy and isinstance(tensor, numpy.ndarray)) or (torch and isinstance(tensor, torch.Tensor)):
        return tensor
    if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        return _from_dlpack(name, tensor, numpy, torch, writing)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _from_cuda_array(name, tensor, torch, writing)
    return tensor  # refused by `views_of`, in its words


def _from_dlpack(name: Any, tensor: Any, numpy: Any, torch: Any, writing: bool) -> Any:
    kind = int(tensor.__dlpack_device__()[0])
    if writing:
        if kind not in _DLPACK_HOST and hasattr(tensor, "__cuda_array_interface__"):
            return _from_cuda_array(name, tensor, torch, writing)  # which says whether it may be written
        torch = None if kind in _DLPACK_HOST else torch
    if torch is None and (numpy is None or kind not in _DLPACK_HOST):
        needed = "numpy" if kind in _DLPACK_HOST else "torch"
        raise _refused(name, tensor, f"only {needed} can look at its memory, and it isn't loaded", f"import {needed}")
    try:
        return torch.from_dlpack(tensor) if torch is not None else numpy.from_dlpack(tensor)
    except (RuntimeError, TypeError, ValueError, BufferError) as cause:
        raise _refused(name, tensor, f"it can't be seen through DLPack: {cause}", "give a torch tensor") from cause


def _from_cuda_array(name: Any, tensor: Any, torch: Any, writing: bool) -> Any:
    if torch is None:
        raise _refused(name, tensor, "only torch can look at its memory, and it isn't loaded", "import torch")
    interface = tensor.__cuda_array_interface__
    address, read_only = interface["data"]
    if writing and read_only:
        raise _refused(name, tensor, "its owner doesn't let it be written", "give one that may be written")
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
