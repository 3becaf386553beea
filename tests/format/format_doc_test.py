"""docs/format.md tells the truth: its code runs, and its examples are what the writer writes."""

from __future__ import annotations

import pathlib
import re
import zlib
from typing import Any

import numpy as np
import pytest

import coldsnap
from tests.format import helpers, page


def pattern(nbytes: int) -> np.ndarray:
    return (np.arange(nbytes) % 251).astype(np.uint8)


@pytest.fixture(scope="module")
def reader() -> dict[str, Any]:
    return page.reference_reader()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> helpers.Written:
    """The artifact of "A worked example"."""
    identity, scalars = page.blocks("A worked example", "json")
    data = {f"t{nbytes}": pattern(nbytes) for nbytes in page.SIZES}
    specs = [
        helpers.spec_of_bytes(name, array, "U8", [array.nbytes], number)
        for number, (name, array) in enumerate(data.items())
    ]
    return helpers.write(tmp_path_factory.mktemp("doc") / "example", specs, identity, scalars)


def test_reference_reader_is_short() -> None:
    (code,) = page.blocks("A reference reader", "python")
    body = code[code.index("def tensors") :]
    assert len(body.splitlines()) <= 25
    assert re.findall(r"^import (\w+)$", code, re.MULTILINE) == ["hashlib", "json"]


def test_reference_reader_reads_what_was_written(reader: dict[str, Any], example: helpers.Written) -> None:
    found = {name: (dtype, shape, strides, offset, data) for name, dtype, shape, strides, _, offset, data in
             reader["tensors"](example.folder)}  # fmt: skip
    assert found == {f"t{nbytes}": ("U8", [nbytes], [1], 0, pattern(nbytes).tobytes()) for nbytes in page.SIZES}


@pytest.mark.parametrize("file", ["artifact.json", "manifest.json", "leaves.bin", "weights.safetensors"])
def test_reference_reader_finds_damage(
    reader: dict[str, Any], example: helpers.Written, file: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / helpers.SHARD).mkdir()
    for path in [example.folder / "artifact.json", *(example.folder / helpers.SHARD).iterdir()]:
        data = bytearray(path.read_bytes())
        if path.name == file:
            data[len(data) // 3] ^= 1
        (tmp_path / path.relative_to(example.folder)).write_bytes(data)
    with pytest.raises((AssertionError, ValueError)):
        list(reader["tensors"](tmp_path))


def test_digest_examples() -> None:
    rows = page.table("Digests", "bytes")
    assert [int(row[0]) for row in rows] == list(page.SIZES)
    for nbytes, leaves, crc32, sha256t in rows:
        data = pattern(int(nbytes)).tobytes()
        found = helpers.leaves_of(data)
        assert int(leaves) == len(found) // 32
        assert crc32 == f"{zlib.crc32(data):08x}"
        assert sha256t == helpers.hashlib.sha256(found).hexdigest()


def test_digest_examples_are_what_is_written(example: helpers.Written) -> None:
    stated = {int(row[0]): row[2:] for row in page.table("Digests", "bytes")}
    columns = example.manifest["extents"]
    for nbytes, *digests in zip(columns["nbytes"], columns["crc32"], columns["sha256t"], strict=True):
        assert digests == stated[nbytes]


def test_example_header(example: helpers.Written) -> None:
    (stated,) = page.blocks("A worked example", "header")
    data_start = example.manifest["data_start"]
    assert example.blob[:8] == bytes.fromhex("f8 ff 00 00 00 00 00 00")
    assert example.blob[8:data_start].rstrip(b" ").decode() == stated.replace("\n", "")


def test_example_manifest(example: helpers.Written) -> None:
    (stated,) = page.blocks("A worked example", "manifest")
    assert example.manifest_text.decode() == stated.replace("\n", "")


def test_example_places(example: helpers.Written) -> None:
    columns, tensors = example.manifest["extents"], example.manifest["tensors"]
    for index, name, nbytes, file_offset in page.table("A worked example", "extent"):
        assert columns["nbytes"][int(index)] == int(nbytes)
        assert columns["file_offset"][int(index)] == int(file_offset)
        assert tensors["extent"][tensors["names"].index(name)] == int(index)
    assert f"The blob has {len(example.blob)} bytes" in page.section("A worked example")
    assert f"7 leaves in {len(example.leaves)}," in page.section("A worked example")


def test_example_digests(reader: dict[str, Any], example: helpers.Written) -> None:
    stated = {row[0].strip("`"): row[1] for row in page.table("A worked example", "digest")}
    manifest = example.manifest
    assert stated == {
        "header_sha256": manifest["header_sha256"],
        "extents_digest": reader["root"]({"extents": manifest["extents"]}),
        "layout_digest": manifest["layout_digest"],
        "leaves_sha256": manifest["leaves_sha256"],
        "shard_root": manifest["shard_root"],
        "identity digest": reader["root"](manifest["identity"]),
        "artifact_root": example.artifact["artifact_root"],
    }
    assert example.receipt["artifact_root"] == stated["artifact_root"]


def test_documented_dtypes_are_what_is_written(tmp_path: pathlib.Path) -> None:
    dtypes = []
    for names, element_bytes, in_header in page.table("Tensors and extents", "dtype"):
        for dtype in names.split(", "):
            nbytes = int(element_bytes.split(" ")[0])
            dtypes.append((dtype, nbytes, in_header.startswith("yes"), "doubled" in in_header))
    data = [pattern(3 * nbytes) for _, nbytes, _, _ in dtypes]
    specs = [
        helpers.spec_of_bytes(dtype, array, dtype, [3], number)
        for number, ((dtype, *_), array) in enumerate(zip(dtypes, data, strict=True))
    ]
    header = helpers.write(tmp_path / "artifact", specs).header
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert {name: info.nbytes for name, info in artifact.items()} == {d: 3 * nbytes for d, nbytes, _, _ in dtypes}
    for dtype, _, in_header, doubled in dtypes:
        assert (dtype in header) == in_header, dtype
        if in_header:
            assert header[dtype].dtype == dtype
            assert header[dtype].shape == [6 if doubled else 3]
