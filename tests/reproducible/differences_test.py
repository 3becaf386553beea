"""A difference between two files is found and named by what it lies in, for every kind of file and of difference."""

from __future__ import annotations

import io
import pathlib
import zipfile

import pytest

from coldsnap import _native
from tests.reproducible.differences import differences, sections

EPOCH = (1980, 1, 1, 0, 0, 0)
MODULE = pathlib.Path(_native.__file__)


def wheel(members: dict[str, bytes], date: tuple[int, ...] = EPOCH, mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            member = zipfile.ZipInfo(name, date)  # type: ignore[arg-type]
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            archive.writestr(member, data)
    return out.getvalue()


def test_the_same_is_no_difference() -> None:
    for data in (b"", b"x", wheel({"a": b"1"}), MODULE.read_bytes()):
        assert differences(data, bytes(data), "f") == []


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (b"abXd", "f: 1 of 4 bytes, from offset 2: b'abcd' and b'abXd'"),
        (b"abcd!", "f: 4 bytes and 5, from offset 4: b'abcd' and b'abcd!'"),
        (b"", "f: 4 bytes and 0, from offset 0: b'abcd' and b''"),
    ],
)
def test_bytes(other: bytes, line: str) -> None:
    assert differences(b"abcd", other, "f") == [line]


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        (wheel({"a": b"1", "b": b"3"}), ["w: b: 1 of 1 bytes, from offset 0: b'2' and b'3'"]),
        (wheel({"a": b"1"}), ["w: member b is in the first alone"]),
        (wheel({"a": b"1", "b": b"2", "c": b""}), ["w: member c is in the second alone"]),
        (
            wheel({"a": b"1", "b": b"2"}, (2026, 1, 2, 3, 4, 6)),
            [f"w: {name}: date_time is {EPOCH} and (2026, 1, 2, 3, 4, 6)" for name in "ab"],
        ),
        (
            wheel({"a": b"1", "b": b"2"}, mode=0o755),
            [f"w: {name}: external_attr is {0o644 << 16} and {0o755 << 16}" for name in "ab"],
        ),
    ],
)
def test_members(other: bytes, lines: list[str]) -> None:
    assert differences(wheel({"a": b"1", "b": b"2"}), other, "w") == lines


def test_the_order_of_members() -> None:
    (line,) = differences(wheel({"a": b"1", "b": b"2"}), wheel({"b": b"2", "a": b"1"}), "w")
    assert line.startswith("w: the order of the members: ")


def test_what_is_in_no_member() -> None:
    whole = wheel({"a": b"1"})
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.comment == b""
    (line,) = differences(whole, whole[:-2] + b"\1\0!", "w")
    assert line.startswith(
        f"w: the archive itself: {len(whole)} bytes and {len(whole) + 1}, from offset {len(whole) - 2}"
    )


def test_sections() -> None:
    whole = MODULE.read_bytes()
    found = sections(whole)
    assert {".text", ".rodata", ".dynstr", ".comment"} <= found.keys()
    assert whole[found[".dynstr"].offset :][: found[".dynstr"].nbytes].count(b"libisal.so.2") == 1
    for name in (".rodata", ".text"):
        changed = bytearray(whole)
        changed[found[name].offset + 5] ^= 1
        (line,) = differences(whole, bytes(changed), "m")
        assert line.startswith(f"m: section {name}: 1 of {found[name].nbytes} bytes, from offset 5: ")
    # Within a wheel too, and outside of every section: the header's flags.
    changed = bytearray(whole)
    changed[48] ^= 1
    (line,) = differences(wheel({"m.so": whole}), wheel({"m.so": bytes(changed)}), "w")
    assert line.startswith(f"w: m.so: between its sections: 1 of {len(whole)} bytes, from offset 48: ")
