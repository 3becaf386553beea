"""The library shows what its header declares, needs no more than the wheel does, and Python's structs are the header's."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re

import pytest

from coldsnap import hydration_abi
from tests.wheel import shared_objects

TOP = pathlib.Path(os.environ["RUNFILES_ROOT"])
LIBRARY = TOP / os.environ["LIBRARY"]
HEADER = re.sub(r"//.*", "", (TOP / "cc/abi/hydration.h").read_text())
CAPTURE_HEADER = re.sub(r"//.*", "", (TOP / "cc/abi/capture.h").read_text())
LISTED = re.findall(r"^ +(coldsnap_\w+);$", (TOP / "cc/abi/hydration.lds").read_text(), re.MULTILINE)
STRUCTS = dict(re.findall(r"typedef struct coldsnap_hydration_(\w+) \{(.*?)\}", HEADER, re.DOTALL))

# Every field takes 8 bytes, so the order of the names and these are the whole layout.
_C_TYPES = {
    "size_t": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "const char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "const uint64_t*": ctypes.POINTER(ctypes.c_uint64),
    "const uintptr_t*": ctypes.POINTER(ctypes.c_size_t),
    "const char* const*": ctypes.POINTER(ctypes.c_char_p),
    "coldsnap_hydration_callback": hydration_abi.Callback,
}


def test_exports_the_list_that_is_checked_in() -> None:
    assert len(LISTED) == 13
    assert shared_objects.exports(LIBRARY) == LISTED


def test_the_list_is_what_the_headers_declare_and_python_calls() -> None:
    declared = re.findall(r"^u?int32_t (coldsnap_\w+)\(", HEADER + CAPTURE_HEADER, re.MULTILINE)
    assert sorted(declared) == LISTED
    hydration = [name for name in LISTED if name.startswith("coldsnap_hydration_")]
    assert sorted(f"coldsnap_hydration_{name}" for name in hydration_abi.FUNCTIONS) == hydration
    assert f"#define COLDSNAP_HYDRATION_ABI_VERSION {hydration_abi.VERSION}\n" in HEADER


def test_needs_no_newer_system_than_the_wheel() -> None:
    assert shared_objects.too_new(LIBRARY) == []
    assert shared_objects.strangers(LIBRARY) == []


def test_python_has_every_struct() -> None:
    assert len(STRUCTS) == 7
    assert set(hydration_abi.STRUCTS) == set(STRUCTS)


def test_every_field_of_capture_takes_8_bytes() -> None:
    structs = dict(re.findall(r"typedef struct coldsnap_capture_(\w+) \{(.*?)\}", CAPTURE_HEADER, re.DOTALL))
    assert len(structs) == 6
    types = {c_type for body in structs.values() for c_type, _ in re.findall(r"^ +(\S.*?) ?(\w+);", body, re.MULTILINE)}
    assert types <= {*_C_TYPES, "const int64_t*", "coldsnap_capture_callback"}


@pytest.mark.parametrize("name", STRUCTS)
def test_python_has_the_fields_of_the_header(name: str) -> None:
    declared = re.findall(r"^ +(\S.*?) ?(\w+);", STRUCTS[name], re.MULTILINE)
    kind = hydration_abi.STRUCTS[name]
    assert [(field, _C_TYPES[c_type]) for c_type, field in declared] == list(kind._fields_)
    assert ctypes.sizeof(kind) == 8 * len(declared)
    assert kind().struct_size == ctypes.sizeof(kind)
