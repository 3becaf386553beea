"""Memory that is laid out as captured tensors were, for a restore that has no engine to restore into."""

from __future__ import annotations

from typing import Any

from coldsnap import errors
from coldsnap.artifact import Artifact, TensorInfo
from coldsnap.tensor_files import numpy_dtype, require_memory

# torch's own name of a type, where that is not numpy's of `numpy_dtype`.
_TORCH_OF = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4_e2m1fn_x2",
}


def numpy_destinations(artifact: Artifact) -> dict[str, Any]:
    """Arrays for all of an artifact's tensors, aliased as when they were captured; their bytes are undefined.

    Raises:
        OutOfMemoryError: They don't fit.
    """
    import numpy as np

    require_memory(artifact.payload_bytes, f"allocate destinations for {artifact.shard}")
    extents = [np.empty(extent.nbytes, np.uint8) for extent in artifact.extents]

    def make(info: TensorInfo) -> Any:
        dtype = np.dtype(numpy_dtype(info.dtype))
        if info.extent is None:
            return np.empty(info.shape, dtype)
        strides = [stride * dtype.itemsize for stride in info.strides]
        return np.ndarray(info.shape, dtype, extents[info.extent], info.offset, strides)

    return _by_object(artifact, make)


def torch_destinations(artifact: Artifact, device: str) -> dict[str, Any]:
    """As `numpy_destinations`, as torch tensors on ``device``.

    Raises:
        RouteUnavailableError: torch is not installed, or has no such device or type.
        OutOfMemoryError: They don't fit.
    """
    try:
        import torch
    except ImportError as cause:
        raise errors.RouteUnavailableError(
            f"allocate destinations on {device}: torch, which gives the memory, does not load: {cause}",
            remedy="install torch, or restore to the host",
        ) from cause
    try:
        extents = [torch.empty(extent.nbytes, dtype=torch.uint8, device=device) for extent in artifact.extents]
    except torch.OutOfMemoryError as cause:
        raise errors.OutOfMemoryError(f"allocate {artifact.payload_bytes} bytes on {device}: {cause}") from cause
    except (RuntimeError, AssertionError) as cause:  # no driver, no such device, or torch without CUDA
        raise errors.RouteUnavailableError(
            f"allocate destinations on {device}: {cause}", remedy="restore to the host"
        ) from cause

    def make(info: TensorInfo) -> Any:
        dtype = getattr(torch, torch_name(info.dtype), None)
        if dtype is None or info.dtype.startswith("F6_"):
            raise errors.RouteUnavailableError(
                f"allocate destinations on {device}: this torch has no type for {info.dtype}"
            )
        if info.extent is None:
            return torch.empty(info.shape, dtype=dtype, device=device)
        storage = extents[info.extent].untyped_storage()
        whole = torch.empty(0, dtype=dtype, device=device)
        return whole.set_(storage, info.offset // whole.element_size(), info.shape, info.strides)

    return _by_object(artifact, make)


def torch_name(dtype: str) -> str:
    """What torch calls a type of an artifact; older versions may not have it."""
    return _TORCH_OF.get(dtype, numpy_dtype(dtype))


def _by_object(artifact: Artifact, make: Any) -> dict[str, Any]:
    """One tensor for each object that there was, under all of its names."""
    made: dict[int, Any] = {}
    found = {}
    for name in artifact:
        info = artifact[name]
        if info.object not in made:
            made[info.object] = make(info)
        found[name] = made[info.object]
    return found
