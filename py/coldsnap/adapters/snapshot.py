"""Between a walked model and an artifact: what a capture reads, where a restore writes, and whether the two are equal.

Of the scalars of an artifact's manifest, these are written here:

    coldsnap.scalars   path -> value, as `coldsnap.adapters.walker.Walked.scalars`
    coldsnap.opaque    path -> type of what was not entered
    coldsnap.missing   path -> which left-out module holds a tensor without memory
    coldsnap.host      path -> a small tensor in host memory beside a model on a GPU, with its bytes
"""

from __future__ import annotations

import base64
import bisect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from coldsnap import errors
from coldsnap.adapters.materialise import fill, materialise
from coldsnap.adapters.walker import NOT_ALLOWED, Slot, Walked
from coldsnap.artifact import Artifact, TensorInfo, load_native
from coldsnap.layout import steps
from coldsnap.sources import sources_of
from coldsnap.values import encoded

HOST_BYTES = 64 << 10  # of all tensors in host memory beside a model on a GPU; a manifest is no place for more
_SHOWN = 5

__all__ = [
    "HOST_BYTES",
    "destinations",
    "differences",
    "host_changes",
    "layout_differences",
    "materialise",
    "problems",
    "restore_host",
    "sources",
    "value_differences",
]

Rows = dict[str, tuple[Any, ...]]


def problems(walked: Walked) -> list[str]:
    """Why a model can't be captured as it is: a line for each place, with its type and the reason; empty if it can."""
    found = [f"{path}: {why}" for path, why in walked.refused.items()]
    found += [
        f"{path}: a tensor of shape {list(walked.empty[path].tensor.shape)} on the meta device, and {where}"
        for path, where in walked.missing.items()
        if where == NOT_ALLOWED
    ]
    held = {path: _nbytes(slot.tensor) for path, slot in walked.slots.items() if _on_host(slot)}
    if sum(held.values()) > HOST_BYTES:
        largest = max(held, key=lambda path: held[path])
        found.append(
            f"{largest}: {held[largest]} bytes in host memory beside a model on a GPU, {sum(held.values())} with all "
            f"others, and {HOST_BYTES} are the most"
        )
    return found


def sources(
    walked: Walked,
) -> tuple[dict[str, torch.Tensor], dict[str, str], dict[str, tuple[str, ...]], dict[str, Any]]:
    """What a capture of a walked model takes.

    Returns:
        ``(tensors, roles, attrs, scalars)``, arguments of `coldsnap.capture`.
    Raises:
        RequestInvalidError: `problems` found some; the message names the first ones.
    """
    found = problems(walked)
    if found:
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        raise errors.RequestInvalidError(
            f"capture {len(walked.slots)} tensors of a model: {'; '.join(found[:_SHOWN])}{more}",
            stage="capture",
            remedy="name what belongs to the process to the walk, or capture the model before it is post-processed",
        )
    captured = _captured(walked)
    tensors = {path: slot.tensor for path, slot in captured.items()}
    roles = {path: slot.role for path, slot in captured.items()}
    attrs = {path: slot.attrs for path, slot in captured.items()}
    return tensors, roles, attrs, _scalars(walked)


def destinations(walked: Walked) -> dict[str, torch.Tensor]:
    """Where a restore writes: every tensor but those whose bytes stand in the manifest (`restore_host`)."""
    return {path: slot.tensor for path, slot in _captured(walked).items()}


def restore_host(walked: Walked, artifact: Artifact) -> None:
    """Give the small tensors in host memory, beside a model on a GPU, their captured bytes.

    Raises:
        LayoutError: One is not as it was captured; nothing was written.
    """
    wanted = artifact.scalars.get("coldsnap.host", {})
    different = list(_host_differences(walked, wanted))
    if different:
        raise errors.LayoutError(f"restore tensors in host memory: {'; '.join(different[:_SHOWN])}", stage="open")
    for path, entry in wanted.items():
        fill(walked.slots[path].tensor, entry)


def host_changes(walked: Walked, artifact: Artifact) -> list[str]:
    """The small tensors in host memory, beside a model on a GPU, that hold other bytes than the captured ones; a line each."""
    now, then = _host_entries(walked), artifact.scalars.get("coldsnap.host", {})
    return [
        f"{path}: its bytes in host memory are others"
        for path, entry in then.items()
        if path in now and now[path]["data"] != entry["data"]
    ]


def differences(walked: Walked, artifact: Artifact) -> list[str]:
    """What of a model is not as it was captured; the bytes of tensors apart, which digests compare.

    Returns:
        A line for each difference, with the path and both values: names, dtype, shape, strides, which tensors share
        memory and where in it they are, which names are one object, roles, attrs; then scalars and what was not entered.
    """
    return layout_differences(walked, artifact) + value_differences(walked, artifact)


def layout_differences(walked: Walked, artifact: Artifact) -> list[str]:
    """The part of `differences` that is settled once the model is built: its tensors, and what can't be captured."""
    return [f"{path}: {why}" for path, why in walked.refused.items()] + list(_layout_differences(walked, artifact))


def value_differences(walked: Walked, artifact: Artifact) -> list[str]:
    """The part of `differences` that values decide: of Python, and of what was not entered."""
    scalars = artifact.scalars
    found = list(_host_differences(walked, scalars.get("coldsnap.host", {})))
    now = encoded(_scalars(walked, host=False), "the model's scalars")
    for key, kind in (("scalars", "value"), ("opaque", "type"), ("missing", "place")):
        found += _dict_differences(now[f"coldsnap.{key}"], scalars.get(f"coldsnap.{key}", {}), kind)
    return found


def _captured(walked: Walked) -> dict[str, Slot]:
    return {path: slot for path, slot in walked.slots.items() if not _on_host(slot)}


def _on_host(slot: Slot) -> bool:
    return "device=host" in slot.attrs


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _scalars(walked: Walked, *, host: bool = True) -> dict[str, Any]:
    return {
        "coldsnap.scalars": dict(walked.scalars),
        "coldsnap.opaque": dict(walked.opaque),
        "coldsnap.missing": dict(walked.missing),
        "coldsnap.host": _host_entries(walked) if host else {},
    }


def _host_entries(walked: Walked) -> dict[str, Any]:
    found = _host_layouts(walked)
    for path, entry in found.items():
        plain = walked.slots[path].tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        entry["data"] = base64.b64encode(bytes(plain.tolist())).decode()
    return found


def _host_layouts(walked: Walked) -> dict[str, Any]:
    """The small tensors in host memory; ``object`` and ``storage`` are the first path that has the same one."""
    objects: dict[int, str] = {}
    storages: dict[int, str] = {}
    found = {}
    for path, slot in sorted(walked.slots.items()):
        tensor = slot.tensor
        if _on_host(slot):
            found[path] = {
                "dtype": str(tensor.dtype),
                "shape": list(tensor.shape),
                "strides": list(tensor.stride()),
                "object": objects.setdefault(id(tensor), path),
                "storage": storages.setdefault(tensor.untyped_storage()._cdata, path),
                "role": slot.role,
                "attrs": list(slot.attrs),
            }
    return found


def _host_differences(walked: Walked, wanted: Mapping[str, Any]) -> Iterator[str]:
    then = {path: {key: entry[key] for key in entry if key != "data"} for path, entry in wanted.items()}
    yield from _dict_differences(_host_layouts(walked), then, "tensor in host memory")


def _layout_differences(walked: Walked, artifact: Artifact) -> Iterator[str]:
    tensors = destinations(walked)
    roles = {path: walked.slots[path].role for path in tensors}
    attrs = {path: walked.slots[path].attrs for path in tensors}
    try:
        rows: Rows = {row[0]: row for row in sources_of(tensors, roles, attrs).rows}
        extents = _Extents(list(rows.values()))
    except errors.RequestInvalidError as cause:
        yield cause.message
        return
    yield from (f"{path}: not in the artifact" for path in rows if path not in artifact)
    for path in artifact:
        if path in rows:
            yield from _tensor_differences(path, extents.info(rows[path]), artifact[path])
        else:
            yield f"{path}: in the artifact, and not in the model"
    if len(rows) == len(artifact):
        sizes = [(extents.nbytes(index), extent.nbytes) for index, extent in enumerate(artifact.extents)]
        yield from (
            f"{artifact.name_of_extent(index)}: its storage has {now} bytes, captured {then}"
            for index, (now, then) in enumerate(sizes)
            if now != then
        )


def _tensor_differences(path: str, now: TensorInfo, then: TensorInfo) -> Iterator[str]:
    pairs = [(name, getattr(now, name), getattr(then, name)) for name in ("dtype", "shape", "role", "attrs", "object")]
    if now.shape == then.shape:
        pairs.append(("strides", steps(now.shape, now.strides), steps(then.shape, then.strides)))
    if now.nbytes or then.nbytes:
        pairs += [("extent", now.extent, then.extent), ("offset", now.offset, then.offset)]
    for name, mine, captured in pairs:
        if mine != captured:
            shown = [list(value) if isinstance(value, tuple) else value for value in (mine, captured)]
            yield f"{path}: {name} {shown[0]}, captured {shown[1]}"


class _Extents:
    """Where tensors would be in a blob."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        found = load_native().plan_layout(rows).extents()
        self._nbytes = [nbytes for _, _, nbytes in found]
        self._begins = sorted((address, index) for index, (_, address, nbytes) in enumerate(found) if nbytes)

    def nbytes(self, index: int) -> int:
        return self._nbytes[index] if index < len(self._nbytes) else 0

    def info(self, row: tuple[Any, ...]) -> TensorInfo:
        _, dtype, shape, strides, address, _, storage_nbytes, same, role, attrs = row
        extent, offset = self._of(address) if storage_nbytes else (None, 0)
        nbytes = 0 if 0 in shape else 1
        return TensorInfo(dtype, tuple(shape), tuple(strides), nbytes, extent, offset, same, role, tuple(attrs))

    def _of(self, address: int) -> tuple[int | None, int]:
        at = bisect.bisect_right(self._begins, (address, len(self._nbytes))) - 1
        if at < 0:
            return None, 0
        begin, index = self._begins[at]
        return index, address - begin


def _dict_differences(now: Mapping[str, Any], then: Mapping[str, Any], what: str) -> Iterator[str]:
    if json.dumps(now, sort_keys=True) == json.dumps(then, sort_keys=True):
        return  # as the lines below would find, path by path, in many times the time
    for path in sorted(now.keys() | then.keys()):
        mine, captured = (json.dumps(side[path], sort_keys=True) if path in side else "absent" for side in (now, then))
        if mine != captured:
            yield f"{path}: {what} {mine}, captured {captured}"
