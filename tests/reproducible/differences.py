"""In what two files differ that should be the same: a wheel's members, a shared library's sections, else the offsets."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_ELF64 = b"\x7fELF\x02\x01"  # 64 bits, little endian: what we build
# System V ABI, "ELF Header" and "Sections": where the section headers are, and what stands in one.
_HEADERS, _HEADER = struct.Struct("<40xQ10xHHH"), struct.Struct("<IIQQQQ")
_NOBITS = 8


class Section(NamedTuple):
    """A section of an ELF file: where its bytes lie."""

    offset: int
    nbytes: int


def differences(first: bytes, second: bytes, name: str) -> list[str]:
    """One line for each place where two files differ; none if they are equal.

    Args:
        first: All bytes of one.
        second: All bytes of the other.
        name: What the lines begin with.
    """
    if first == second:
        return []
    if all(zipfile.is_zipfile(io.BytesIO(data)) for data in (first, second)):
        return list(_of_archives(first, second, name))
    if first.startswith(_ELF64) and second.startswith(_ELF64):
        return list(_of_libraries(first, second, name))
    return [f"{name}: {_bytes_of(first, second)}"]


def sections(data: bytes) -> dict[str, Section]:
    """The sections of an ELF file that have bytes in it, by name, in the file's order.

    Raises:
        struct.error: It ends before its section headers do.
    """
    start, size, count, names = _HEADERS.unpack_from(data)
    headers = [_HEADER.unpack_from(data, start + size * index) for index in range(count)]
    text = headers[names][4]
    found = {}
    for at, kind, _, _, offset, nbytes in headers:
        name = data[text + at : data.index(b"\0", text + at)].decode()
        if name and kind != _NOBITS:
            found[name] = Section(offset, nbytes)
    return found


def _of_archives(first: bytes, second: bytes, name: str) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(first)) as one, zipfile.ZipFile(io.BytesIO(second)) as other:
        members = [{member.filename: member for member in archive.infolist()} for archive in (one, other)]
        yield from _of_names(members[0], members[1], name, "member")
        before = False
        for path in sorted(members[0].keys() & members[1].keys()):
            for line in differences(one.read(path), other.read(path), f"{name}: {path}"):
                before = True
                yield line
            for field in ("date_time", "external_attr", "compress_type", "create_system", "extra"):
                values = [getattr(each[path], field) for each in members]
                if values[0] != values[1]:
                    before = True
                    yield f"{name}: {path}: {field} is {values[0]} and {values[1]}"
        if not before and members[0].keys() == members[1].keys():
            order = "order of the members" if list(members[0]) != list(members[1]) else "archive itself"
            yield f"{name}: the {order}: {_bytes_of(first, second)}"


def _of_libraries(first: bytes, second: bytes, name: str) -> Iterator[str]:
    found = [sections(data) for data in (first, second)]
    yield from _of_names(found[0], found[1], name, "section")
    before = found[0].keys() != found[1].keys()
    for section in (section for section in found[0] if section in found[1]):
        data = [
            whole[each[section].offset :][: each[section].nbytes]
            for whole, each in zip((first, second), found, strict=True)
        ]
        if data[0] != data[1]:
            before = True
            yield f"{name}: section {section}: {_bytes_of(data[0], data[1])}"
    if not before:
        yield f"{name}: between its sections: {_bytes_of(first, second)}"


def _of_names(first: Mapping[str, object], second: Mapping[str, object], name: str, kind: str) -> Iterator[str]:
    for which, here, there in (("first", first, second), ("second", second, first)):
        yield from (f"{name}: {kind} {path} is in the {which} alone" for path in here if path not in there)


def _bytes_of(first: bytes, second: bytes) -> str:
    """Where two pieces differ first, in how many bytes, and what stands there."""
    if len(first) != len(second):
        sizes = f"{len(first)} bytes and {len(second)}, "
    else:
        sizes = f"{sum(a != b for a, b in zip(first, second, strict=True))} of {len(first)} bytes, "
    at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
    shown = [data[max(0, at - 16) : at + 48] for data in (first, second)]
    return f"{sizes}from offset {at}: {shown[0]!r} and {shown[1]!r}"
