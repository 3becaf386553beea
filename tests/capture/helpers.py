"""Layouts to capture, destinations for what was captured, and what a folder holds."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import coldsnap

BACKENDS = ("python", "buffered", "direct", "auto")
NATIVE = ("buffered", "direct")
NUMPY_DTYPES = {
    **{"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32"},
    **{"I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64"},
    **{"C64": "complex64", "C128": "complex128"},
}
# Elements: their bytes straddle the edges of leaves, small extents and the alignment between them.
_SIZES = (0, 1, 7, 511, 512, 8191, 65535, 65536, 65537, 131072)
SLOW_IS_FINE = hypothesis.settings(
    max_examples=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)


def random_bytes(nbytes: int, seed: int = 7) -> np.ndarray:
    """Bytes of every value: as floats there are NaNs with payloads, infinities and negative zeros among them."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def array_of(dtype: str, size: int, seed: int) -> np.ndarray:
    """An array of its own memory with random bits; of bool, with random truth values."""
    numpy_dtype = np.dtype(NUMPY_DTYPES[dtype])
    data = random_bytes(size * numpy_dtype.itemsize, seed)
    return (data & 1 if dtype == "BOOL" else data).view(numpy_dtype)


@st.composite
def _family(draw: st.DrawFn) -> list[np.ndarray]:
    """One array, and views of it: parts, strides, turned, of no dimension, of no element, the same object again."""
    size = draw(st.sampled_from(_SIZES))
    base = array_of(draw(st.sampled_from(sorted(NUMPY_DTYPES))), size, size)
    views = [base]
    if size:
        views += [base[::3], base[: size // 2], base[size // 3 : size // 3], base[-1:].reshape(())]
        views += [
            base.view(np.uint8),
            base[np.newaxis, :],
            np.lib.stride_tricks.as_strided(base, (2, size), (0, base.itemsize)),
        ]
    for rows in (2, 7, 512):
        if size and size % rows == 0:
            table = base.reshape(rows, -1)
            views += [table.T, table[:, :1], table[1:, ::2]]
    return [draw(st.sampled_from(views)) for _ in range(draw(st.integers(1, 4)))]


@st.composite
def _neighbours(draw: st.DrawFn) -> list[np.ndarray]:
    """Arrays over one buffer that know nothing of each other: they overlap, touch, or leave a gap."""
    buffer = memoryview(random_bytes(70_000, 3)).cast("B")
    begins = draw(st.lists(st.integers(0, 60_000), min_size=1, max_size=4))
    return [np.frombuffer(buffer[begin : begin + draw(st.integers(1, 9000))], np.uint8) for begin in begins]


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Named arrays of any kind that a capture takes."""
    families = draw(st.lists(_family() | _neighbours(), max_size=5))
    arrays = [array for family in families for array in family]
    names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=9)
    odd = st.sampled_from(["__storage__.0", "__pad__.0", "__metadata__", "a", "a.b", "\uffff", "\U0001f600"])
    chosen = draw(st.lists(names | odd, min_size=len(arrays), max_size=len(arrays), unique=True))
    return dict(zip(chosen, arrays, strict=True))


def destinations(artifact: coldsnap.Artifact, fill: int = 0x55) -> dict[str, np.ndarray]:
    """Arrays laid out as the captured ones, over one buffer for each extent."""
    buffers = [np.full(extent.nbytes, fill, np.uint8) for extent in artifact.extents]
    found = {}
    for name, info in artifact.items():
        dtype = np.dtype(NUMPY_DTYPES[info.dtype])
        strides = tuple(stride * dtype.itemsize for stride in info.strides)
        buffer: Any = np.zeros(0, np.uint8) if info.extent is None else buffers[info.extent]
        found[name] = np.ndarray(info.shape, dtype, buffer, info.offset, strides)
    return found


def assert_same_bits(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Compare bytes, so that NaNs and negative zeros count."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder but artifact.json, whose account of the capture differs."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "artifact.json"
    }


def names_in(folder: pathlib.Path) -> list[str]:
    """Everything below a folder, hidden things too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def codes(receipt: coldsnap.Receipt) -> list[str]:
    """The codes of the reasons, in order."""
    return [reason["code"] for reason in receipt.reasons]


def model() -> dict[str, np.ndarray]:
    """Large and small extents, one of them under two names."""
    table = array_of("F32", 60_000, 1).reshape(200, 300)
    return {
        "table": table,
        "turned": table.T,
        "bias": array_of("F64", 33, 2),
        "scale": array_of("F16", 1, 3).reshape(()),
    }


class Fault:
    """The nth call of a function of os does something else; `fired` says whether it came to that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, instead: Callable[..., Any], nth: int = 1) -> None:
        self._real, self._instead, self._left = getattr(os, name), instead, nth
        self.fired = False
        monkeypatch.setattr(os, name, self._call)

    def _call(self, *arguments: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left != 0:
            return self._real(*arguments, **more)
        self.fired = True
        return self._instead(self._real, *arguments, **more)


def fails(number: int) -> Callable[..., Any]:
    """For `Fault`: the call fails with this errno."""

    def instead(real: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return instead
