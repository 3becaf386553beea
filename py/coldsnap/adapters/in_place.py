"""The weights of an engine that runs, beside the artifact that they were captured as or restored from.

An engine goes on building after its weights are loaded: it binds a KV cache where there was an empty tensor, and notes
what it found out. So a live model is looked at as far as it was there when it was captured. Nothing here writes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from coldsnap import layout, settings
from coldsnap.adapters.materialise import host_tensor
from coldsnap.adapters.walker import Slot, Walked
from coldsnap.artifact import Artifact, load_native
from coldsnap.destinations import torch_name
from coldsnap.layout import Range
from coldsnap.python_capture import first_difference
from coldsnap.python_provider import memory_for
from coldsnap.settings import LEAF_BYTES, MIB
from coldsnap.tensors import views_of

_CHUNK_BYTES = 4 * MIB


def as_captured(walked: Walked, artifact: Artifact, later: Callable[[str], bool]) -> Walked:
    """What of a live model was there when the artifact was captured, for `coldsnap.adapters.snapshot`.

    Args:
        walked: The live model.
        artifact: The artifact.
        later: True for the path of something that the engine gives its model after loading. A captured tensor there is
            taken as it was if it had no bytes: what is there now is none of the artifact's.
    """
    scalars = artifact.scalars
    then = {key: scalars.get(f"coldsnap.{key}", {}) for key in ("scalars", "opaque", "missing", "host")}
    tensors = artifact.keys() | then["host"].keys()
    slots = {path: slot for path, slot in walked.slots.items() if path in tensors}
    slots.update(_empty_ones(artifact, then["host"], later))

    # What is None at first is found out when it is first needed.
    unknown = {path for path, value in then["scalars"].items() if value is None}

    def known(now: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = {path: value for path, value in now.items() if path in then[key]}
        return found | {path: value for path, value in then[key].items() if path in unknown or later(path)}

    return replace(
        walked,
        slots=slots,
        scalars=known(walked.scalars, "scalars"),
        opaque=known(walked.opaque, "opaque"),
        missing=known(walked.missing, "missing"),
        refused={
            path: why
            for path, why in walked.refused.items()
            if not (path in unknown or later(path))
            and (path in tensors or path in then["scalars"] or f"{path}.__class__" in then["scalars"])
        },
    )


def _empty_ones(
    artifact: Artifact, host: Mapping[str, Any], later: Callable[[str], bool]
) -> Iterator[tuple[str, Slot]]:
    """Captured tensors without bytes at places that the engine fills later, as they were."""
    made: dict[int, torch.Tensor] = {}
    for path in filter(later, artifact):
        info = artifact[path]
        if info.extent is None and 0 in info.shape:
            dtype = getattr(torch, torch_name(info.dtype))
            tensor = made.setdefault(info.object, torch.empty(info.shape, dtype=dtype))
            yield path, Slot(path, tensor, info.role, info.attrs)
    for path in filter(later, host):
        if 0 in host[path]["shape"]:
            yield path, Slot(path, host_tensor(host[path]), host[path]["role"], tuple(host[path]["attrs"]))


def changed(artifact: Artifact, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Which live tensors don't hold the captured bytes, by the digests of the artifact.

    Args:
        artifact: The artifact.
        tensors: All of its tensors, on one device, by name.
    Returns:
        A line for each extent that differs, with a tensor in it and the first 64 KiB piece, by extent.
    Raises:
        LayoutError: They are not laid out as they were captured.
        CudaError, OutOfMemoryError: The machine failed.
    """
    views = views_of(tensors)
    ranges = layout.match(artifact, views, partial=False)
    device = layout.device_of(views)
    threads = settings.default_read_threads(load_native().limits())
    parts = [part for part in (ranges[first::threads] for first in range(threads)) if part]

    def compare(part: list[Range]) -> list[tuple[int, str]]:
        memory = memory_for(device, tensors, part, _CHUNK_BYTES, [])
        with memory.ordered():
            found = [(extent, _first_change(artifact, memory, extent, *where)) for extent, *where in part]
        return [(extent, line) for extent, line in found if line]

    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        return [line for _, line in sorted(each for found in pool.map(compare, parts) for each in found)]


def _first_change(artifact: Artifact, memory: Any, extent: int, address: int, nbytes: int) -> str:
    """Where an extent's memory first differs from what was captured; empty if nowhere."""
    leaves = artifact.native.leaves(extent)
    for begin in range(0, nbytes, _CHUNK_BYTES):
        piece = memory.fetch(address + begin, min(_CHUNK_BYTES, nbytes - begin))
        at = first_difference(piece, leaves, begin)
        if at is not None:
            pieces = -(-nbytes // LEAF_BYTES)
            return f"{artifact.name_of_extent(extent)}: piece {at // LEAF_BYTES} of {pieces}, 64 KiB each, is another"
    return ""
