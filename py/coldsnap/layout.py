"""Whether the destinations of a restore are laid out as the captured tensors were, and which ranges they give.

Nothing is read or written before this has passed. Digests cover whole extents, so a restore fills whole extents: the
ranges are those of extents, found from the tensors in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from coldsnap import errors
from coldsnap.artifact import Artifact, TensorInfo
from coldsnap.tensors import NUMPY_STAND_INS, TensorView

_SHOWN = 3  # offenders that a message names; the rest are counted

Range = tuple[int, int, int]  # extent index, address, bytes


def match(artifact: Artifact, views: Mapping[str, TensorView], partial: bool) -> list[Range]:
    """Check destinations against an artifact and find the range of every extent.

    Args:
        artifact: Where the bytes come from.
        views: Destinations by name.
        partial: Whether captured tensors may be missing. An extent is filled as soon as one of its tensors is given:
            tensors that shared memory when they were captured are restored together.
    Returns:
        ``(extent, address, nbytes)`` for each extent to fill, by extent index.
    Raises:
        LayoutError: A name is missing or unknown; dtype, shape or strides differ; tensors that shared memory don't;
            a storage is too small for its extent; ranges of two extents overlap; or the devices differ.
        RequestInvalidError: A destination is read-only.
    """
    _check_names(artifact, views, partial)
    infos = {name: artifact[name] for name in views}
    _refuse("differ from the artifact", (_difference(infos[name], view) for name, view in views.items()))
    read_only = (f"{name!r}" for name, view in views.items() if not view.writable)
    _refuse("read-only", read_only, errors.RequestInvalidError)
    _check_one_device(views)

    members: dict[int, list[TensorView]] = {}
    for name, view in views.items():
        extent = infos[name].extent
        if extent is not None and view.nbytes > 0:
            members.setdefault(extent, []).append(view)
    ranges = [_range_of(artifact, infos, extent, members[extent]) for extent in sorted(members)]
    _check_disjoint(ranges, members)
    return ranges


def device_of(views: Mapping[str, TensorView]) -> str:
    """The device of checked destinations: ``host`` or ``cuda:N``; ``host`` when none has a byte."""
    return next((view.device for view in views.values() if view.nbytes > 0), "host")


def _check_names(artifact: Artifact, views: Mapping[str, TensorView], partial: bool) -> None:
    extra = [name for name in views if name not in artifact]
    if extra:
        raise errors.LayoutError(
            f"match {len(views)} destinations with {len(artifact)} captured tensors: not in the artifact: "
            f"{_some(extra)}",
            stage="open",
            remedy="leave them out",
        )
    missing = [] if partial else [name for name in artifact if name not in views]
    if missing:
        raise errors.LayoutError(
            f"match {len(views)} destinations with {len(artifact)} captured tensors: no destination for "
            f"{_some(missing)}",
            stage="open",
            remedy="add them, or pass partial=True to leave them out on purpose",
        )


def _refuse(what: str, problems: Iterable[str | None], kind: type[errors.Error] = errors.LayoutError) -> None:
    """Raise one error for all the destinations with a problem: the first ones in words, the rest as a number."""
    found = [text for text in problems if text is not None]
    if found:
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        count = f"{len(found)} destination{'s' if len(found) > 1 else ''}"
        raise kind(f"match destinations: {count} {what}: {'; '.join(found[:_SHOWN])}{more}", stage="open")


def _difference(info: TensorInfo, view: TensorView) -> str | None:
    stand_in = NUMPY_STAND_INS.get(info.dtype) if view.framework == "numpy" else None
    if view.dtype != info.dtype and view.dtype != stand_in:
        also = f" (in numpy {stand_in})" if stand_in else ""
        return f"{view.name!r} has dtype {view.dtype}, captured {info.dtype}{also}"
    if view.shape != info.shape:
        return f"{view.name!r} has shape {list(view.shape)}, captured {list(info.shape)}"
    if view.strides != info.strides and steps(view.shape, view.strides) != steps(info.shape, info.strides):
        return f"{view.name!r} has strides {list(view.strides)} (elements), captured {list(info.strides)}"
    return None


def steps(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides that lead anywhere: two tensors of one shape are laid out alike if these are equal."""
    # The stride of a dimension of one element, and every stride of a tensor of none, leads nowhere: frameworks fill
    # in what they like.
    return [] if 0 in shape else [stride for length, stride in zip(shape, strides, strict=True) if length > 1]


def _check_one_device(views: Mapping[str, TensorView]) -> None:
    device = device_of(views)
    elsewhere = [view for view in views.values() if view.nbytes > 0 and view.device != device]
    if elsewhere:
        first = next(view for view in views.values() if view.nbytes > 0)
        others = sorted({view.device for view in elsewhere})
        raise errors.LayoutError(
            f"match destinations: {first.name!r} is on {device}, but on {', '.join(others)}: "
            f"{_some([view.name for view in elsewhere])}",
            stage="open",
            remedy="hydrate one device at a time, with partial=True",
        )


def _range_of(artifact: Artifact, infos: Mapping[str, TensorInfo], extent: int, views: list[TensorView]) -> Range:
    nbytes = artifact.extent(extent).nbytes
    first = views[0]
    begin = first.address - infos[first.name].offset
    storage_end = first.storage_address + first.storage_nbytes
    if len(views) == 1 and first.storage_address <= begin and begin + nbytes <= storage_end:
        return extent, begin, nbytes  # nearly always
    for view in views:
        if view.address - infos[view.name].offset != begin:
            raise errors.LayoutError(
                f"match destinations: {first.name!r} and {view.name!r} share memory in extent {extent}, "
                f"{infos[view.name].offset - infos[first.name].offset} bytes apart, and their destinations are "
                f"{view.address - first.address} bytes apart",
                stage="open",
                remedy="make the destinations views of one storage, as they were when captured",
            )
    if not _covered(begin, begin + nbytes, views):
        raise errors.LayoutError(
            f"match destinations: extent {extent} has {nbytes} bytes, {infos[first.name].offset} of them before "
            f"{first.name!r}, and the storage of its destination has {first.storage_nbytes}, "
            f"{first.address - first.storage_address} of them before it",
            stage="open",
            remedy="give a destination whose storage is as large as the captured one",
        )
    return extent, begin, nbytes


def _covered(begin: int, end: int, views: list[TensorView]) -> bool:
    """Whether the storages of the views hold every byte of [begin, end)."""
    reached = begin
    for start, stop in sorted({(v.storage_address, v.storage_address + v.storage_nbytes) for v in views}):
        if start > reached:
            return False
        reached = max(reached, stop)
    return reached >= end


def _check_disjoint(ranges: list[Range], members: Mapping[int, list[TensorView]]) -> None:
    for lower, upper in overlaps(ranges):
        one, other = members[lower[0]][0].name, members[upper[0]][0].name
        shared = min(lower[1] + lower[2], upper[1] + upper[2]) - upper[1]
        raise errors.LayoutError(
            f"match destinations: {one!r} (extent {lower[0]}) and {other!r} (extent {upper[0]}) share {shared} bytes, "
            "and did not when they were captured",
            stage="open",
            remedy="give each its own memory",
        )


def overlaps(ranges: list[Range]) -> Iterator[tuple[Range, Range]]:
    """Pairs of ranges that share a byte: each range with the one before it that reaches furthest."""
    ordered = sorted(ranges, key=lambda entry: entry[1])
    if not ordered:
        return
    furthest = ordered[0]
    for entry in ordered[1:]:
        if entry[1] < furthest[1] + furthest[2]:
            yield furthest, entry
        if entry[1] + entry[2] > furthest[1] + furthest[2]:
            furthest = entry


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
