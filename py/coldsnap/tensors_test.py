"""Addresses, storages and types of numpy arrays; torch's are in tests/api, where there is a torch."""

import sys
from typing import Any

import numpy as np
import pytest

from coldsnap import artifact, errors, tensors
from coldsnap.tensors import native_specs, view_of, views_of


def address_of(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_whole_array() -> None:
    array = np.zeros((3, 5), np.float32)
    view = view_of("w", array)
    assert (view.name, view.dtype, view.shape, view.strides) == ("w", "F32", (3, 5), (5, 1))
    assert (view.address, view.nbytes) == (address_of(array), 60)
    assert (view.storage_address, view.storage_nbytes) == (address_of(array), 60)
    assert (view.device, view.object_id, view.writable, view.framework) == ("host", id(array), True, "numpy")


def test_a_view_has_the_storage_of_its_owner() -> None:
    owner = np.zeros(100, np.int16)
    inner = owner[10:90].reshape(8, 10)[2:6, ::3]
    view = view_of("w", inner)
    assert (view.shape, view.strides) == ((4, 4), (10, 3))
    assert view.address == address_of(owner) + 2 * (10 + 20)
    assert view.nbytes == 32
    assert (view.storage_address, view.storage_nbytes) == (address_of(owner), 200)


def test_a_transposed_owner_is_as_large_as_its_bytes() -> None:
    owner = np.zeros((7, 3), np.float64, order="F")
    assert view_of("w", owner).storage_nbytes == 7 * 3 * 8
    assert view_of("w", owner).strides == (1, 7)


def test_negative_strides_begin_inside_the_storage() -> None:
    owner = np.arange(10, dtype=np.uint32)
    view = view_of("w", owner[::-1])
    assert view.strides == (-1,)
    assert view.address == address_of(owner) + 36
    assert (view.storage_address, view.storage_nbytes) == (address_of(owner), 40)


def test_a_storage_that_is_walked_backwards() -> None:
    buffer = bytearray(40)
    begin = address_of(np.frombuffer(buffer, np.uint8))
    backwards = np.ndarray((2, 5), np.int32, buffer, 16, (20, -4))
    view = view_of("w", backwards)
    assert view.address == begin + 16
    assert (view.storage_address, view.storage_nbytes) == (begin, 40)


def test_memory_that_is_no_array_s() -> None:
    buffer = bytearray(64)
    whole = view_of("w", np.frombuffer(buffer, np.uint8)[8:16])
    assert whole.storage_nbytes == 64
    assert whole.writable
    assert not view_of("w", np.frombuffer(bytes(8), np.uint8)).writable


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3, 2)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    view = view_of("w", np.zeros(shape, np.float32))
    assert (view.shape, view.nbytes, view.storage_nbytes) == (shape, 0, 0)


def test_no_dimensions() -> None:
    view = view_of("w", np.array(7, np.int64))
    assert (view.shape, view.strides, view.nbytes, view.storage_nbytes) == ((), (), 8, 8)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.bool_, "BOOL"),
        (np.uint8, "U8"),
        (np.int8, "I8"),
        (np.uint16, "U16"),
        (np.int16, "I16"),
        (np.uint32, "U32"),
        (np.int32, "I32"),
        (np.uint64, "U64"),
        (np.int64, "I64"),
        (np.float16, "F16"),
        (np.float32, "F32"),
        (np.float64, "F64"),
        (np.complex64, "C64"),
        (np.complex128, "C128"),
    ],
)
def test_dtypes_as_safetensors_names_them(dtype: Any, name: str) -> None:
    array = np.zeros(3, dtype)
    assert view_of("w", array).dtype == name
    assert artifact.ITEM_BYTES[name] == array.itemsize


def test_stand_ins_are_as_wide_as_what_they_stand_for() -> None:
    for dtype, stand_in in tensors.NUMPY_STAND_INS.items():
        assert artifact.ITEM_BYTES[dtype] == artifact.ITEM_BYTES[stand_in]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (np.zeros(3, ">f4"), "byte order"),
        (np.zeros(3, object), "object"),
        (np.zeros(3, "U4"), "no name in safetensors"),
        (np.zeros(3, "datetime64[s]"), "no name in safetensors"),
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "no name in safetensors"),
        (np.zeros(3, np.longdouble), "no name in safetensors"),
        ([1, 2, 3], "builtins.list"),
        (None, "NoneType"),
        (np.float32(1), "numpy.float32"),
    ],
)
def test_what_is_no_plain_array_is_refused_by_name(tensor: Any, why: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match=why) as caught:
        view_of("model.w", tensor)
    assert "'model.w'" in str(caught.value)
    assert caught.value.remedy


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    records = np.zeros(4, [("a", "u1"), ("b", "<u4")])
    with pytest.raises(errors.RequestInvalidError, match=r"strides \(5,\)"):
        view_of("w", records["b"])


@pytest.mark.parametrize("given", [None, 7, [("w", 1)], {1: np.zeros(1)}, {b"w": np.zeros(1)}])
def test_tensors_are_a_mapping_of_names(given: Any) -> None:
    with pytest.raises(errors.RequestInvalidError):
        views_of(given)


def test_nothing_here_imports_torch() -> None:
    before = "torch" in sys.modules
    view_of("w", np.zeros(1))
    assert ("torch" in sys.modules) == before


def test_specs_are_sorted_and_number_objects_by_name() -> None:
    shared, other = np.zeros(4, np.uint8), np.ones(2, np.float32)
    specs = native_specs({"z": shared, "b": shared, "é": shared[1:], "a": other})
    assert [spec[0] for spec in specs] == ["a", "b", "z", "é"]
    assert [spec[7] for spec in specs] == [0, 1, 1, 2]
    assert specs[1] == ("b", "U8", [4], [1], address_of(shared), address_of(shared), 4, 1, "", [])
    assert specs[3][4:7] == (address_of(shared) + 1, address_of(shared), 4)


def test_specs_refuse_negative_strides() -> None:
    with pytest.raises(errors.RequestInvalidError, match="negative"):
        native_specs({"w": np.zeros(4)[::-1]})
