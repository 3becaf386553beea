"""What destinations are accepted, which ranges they give, and that refusals name both sides."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coldsnap import errors
from coldsnap.artifact import Artifact
from coldsnap.layout import match, overlaps
from coldsnap.tensors import TensorView, view_of, views_of


def row(name: str, dtype: str, shape: list[int], strides: list[int], extent: int | None, offset: int = 0) -> tuple:
    return name, dtype, shape, strides, extent, offset, 0, "", []


def artifact_of(rows: list[tuple], extent_bytes: list[int]) -> Artifact:
    """An artifact without files: what the checks look at."""
    extents = [(65536 * index, nbytes, "00000000", "") for index, nbytes in enumerate(extent_bytes)]
    return Artifact(SimpleNamespace(tensors=lambda: rows, extents=lambda: extents))  # type: ignore[arg-type]


# a and its second half share extent 0, w has extent 1, e has none
ARTIFACT = artifact_of(
    [
        row("a", "F32", [8], [1], 0),
        row("a.half", "F32", [4], [1], 0, 16),
        row("w", "BF16", [2, 3], [3, 1], 1),
        row("e", "F32", [0, 3], [3, 1], None),
    ],
    [32, 12],
)


def destinations(**changed: Any) -> dict[str, Any]:
    a = np.zeros(8, np.float32)
    good = {"a": a, "a.half": a[4:], "w": np.zeros((2, 3), np.uint16), "e": np.zeros((0, 3), np.float32)}
    return good | {name.replace("_", "."): tensor for name, tensor in changed.items()}


def refused(tensors: dict[str, Any], partial: bool = False, artifact: Artifact = ARTIFACT) -> str:
    with pytest.raises(errors.LayoutError) as caught:
        match(artifact, views_of(tensors), partial)
    return str(caught.value)


def test_each_extent_gives_one_range() -> None:
    tensors = destinations()
    assert match(ARTIFACT, views_of(tensors), False) == [
        (0, tensors["a"].ctypes.data, 32),
        (1, tensors["w"].ctypes.data, 12),
    ]


def test_partial_takes_the_whole_extent_of_what_is_named() -> None:
    tensors = destinations()
    half = {"a.half": tensors["a.half"]}
    assert match(ARTIFACT, views_of(half), True) == [(0, tensors["a"].ctypes.data, 32)]


def test_nothing_named_gives_no_range() -> None:
    assert match(ARTIFACT, {}, True) == []


def test_missing_names() -> None:
    text = refused({"a": destinations()["a"]})
    assert "'a.half', 'w', 'e'" in text
    assert "partial=True" in text


def test_extra_names_also_when_partial() -> None:
    extra = {f"x{number}": np.zeros(1) for number in range(5)}
    assert "'x0', 'x1', 'x2' and 2 more" in refused(destinations() | extra, partial=True)


def test_dtype() -> None:
    text = refused(destinations(w=np.zeros((2, 3), np.float16)))
    assert "'w' has dtype F16, captured BF16 (in numpy U16)" in text


def test_torch_has_no_stand_ins() -> None:
    views = views_of(destinations())
    views["w"] = views["w"]._replace(framework="torch")
    with pytest.raises(errors.LayoutError, match=r"'w' has dtype U16, captured BF16$"):
        match(ARTIFACT, views, False)


def test_shape() -> None:
    text = refused(destinations(w=np.zeros((3, 2), np.uint16)))
    assert "'w' has shape [3, 2], captured [2, 3]" in text


def test_shape_of_a_tensor_without_bytes() -> None:
    assert "'e' has shape [3, 0], captured [0, 3]" in refused(destinations(e=np.zeros((3, 0), np.float32)))


def test_strides() -> None:
    text = refused(destinations(w=np.zeros((3, 2), np.uint16).T))
    assert "'w' has strides [1, 2] (elements), captured [3, 1]" in text


def test_strides_that_lead_nowhere_may_differ() -> None:
    one = artifact_of([row("w", "F32", [1, 4, 1], [99, 1, 7], 0), row("e", "F32", [0, 3], [77, 5], None)], [16])
    tensors = {"w": np.zeros((1, 4, 1), np.float32), "e": np.zeros((0, 3), np.float32)}
    assert len(match(one, views_of(tensors), False)) == 1


def test_first_three_in_words_and_the_rest_as_a_number() -> None:
    rows = [row(f"w{number}", "F32", [4], [1], number) for number in range(5)]
    tensors = {f"w{number}": np.zeros(5, np.float32) for number in range(5)}
    text = refused(tensors, artifact=artifact_of(rows, [16] * 5))
    assert "5 destinations differ" in text
    assert "'w2' has shape" in text
    assert "'w3'" not in text
    assert "(and 2 more)" in text


def test_what_shared_memory_must_share_it() -> None:
    text = refused(destinations(a_half=np.zeros(4, np.float32)))
    assert "'a' and 'a.half' share memory in extent 0, 16 bytes apart" in text


def test_the_storage_must_hold_the_whole_extent() -> None:
    text = refused({"a.half": np.zeros(4, np.float32)}, partial=True)
    assert "extent 0 has 32 bytes, 16 of them before 'a.half'" in text
    assert "has 16, 0 of them before it" in text


def test_a_storage_made_of_two_pieces_with_a_gap_is_refused() -> None:
    gap = artifact_of([row("a", "U8", [4], [1], 0), row("b", "U8", [4], [1], 0, 12)], [16])
    base = np.zeros(16, np.uint8)
    views = {name: view_of(name, part)._replace(storage_address=part.ctypes.data, storage_nbytes=4)
             for name, part in (("a", base[:4]), ("b", base[12:]))}  # fmt: skip
    with pytest.raises(errors.LayoutError, match="extent 0 has 16 bytes"):
        match(gap, views, False)


def test_what_had_its_own_memory_must_have_its_own() -> None:
    two = artifact_of([row("a", "U8", [8], [1], 0), row("b", "U8", [8], [1], 1)], [8, 8])
    base = np.zeros(16, np.uint8)
    text = refused({"a": base[:8], "b": base[5:13]}, artifact=two)
    assert "'a' (extent 0) and 'b' (extent 1) share 3 bytes" in text
    assert len(match(two, views_of({"a": base[8:], "b": base[:8]}), False)) == 2  # neighbours are fine


def test_one_device_only() -> None:
    views = views_of(destinations())
    views["w"] = views["w"]._replace(device="cuda:1")
    with pytest.raises(errors.LayoutError, match=r"'a' is on host, but on cuda:1: 'w'"):
        match(ARTIFACT, views, False)


def test_read_only_is_a_wrong_request() -> None:
    tensors = destinations()
    tensors["w"].flags.writeable = False
    with pytest.raises(errors.RequestInvalidError, match="1 destination read-only: 'w'"):
        match(ARTIFACT, views_of(tensors), False)


def test_overlaps_sees_a_small_range_inside_an_earlier_large_one() -> None:
    assert list(overlaps([(0, 0, 100), (1, 10, 5), (2, 50, 5), (3, 100, 5)])) == [
        ((0, 0, 100), (1, 10, 5)),
        ((0, 0, 100), (2, 50, 5)),
    ]
    assert list(overlaps([])) == []


def test_200_000_tensors_take_seconds_at_most() -> None:
    count = 200_000
    rows = [row(f"w{number}", "F32", [4], [1], number) for number in range(count)]
    views = {
        name: TensorView(name, "F32", (4,), (1,), 4096 + 16 * number, 16, 4096, 16 * count, "host", 0, True, "numpy")
        for number, name in enumerate(entry[0] for entry in rows)
    }
    artifact = artifact_of(rows, [16] * count)
    begin = time.monotonic()
    assert len(match(artifact, views, False)) == count
    assert time.monotonic() - begin < 60  # about 2 s; a quadratic check would take hours
