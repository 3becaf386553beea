"""What the first release wrote stays readable, and the same tensors still give the same bytes."""

from __future__ import annotations

import pathlib
import shutil

import numpy as np
import pytest

import coldsnap
from coldsnap.artifact import ITEM_BYTES
from tests.format import helpers, page
from tests.golden import described

GOLDEN = pathlib.Path("tests/golden/format-1")
FILES = ("weights.safetensors", "leaves.bin", "manifest.json")
# Of every file. A change here is a change of the format, for everybody who has an artifact: see README.md.
SHA256 = {
    "artifact.json": "1c04da0b1e1e806cbe8135b9a9318306494afeff6c7e70be77f982e8b06b3b3a",
    "shard-00-00-00/leaves.bin": "f69604fa83c3bdb179c26238712a6da39131bc1e3724340d1c6a396176cd0678",
    "shard-00-00-00/manifest.json": "c75eed7de85b9b5190a8927632f80879b00ea73bc9b328bd75a1a79eb4051f01",
    "shard-00-00-00/weights.safetensors": "ce7c1c33ac9a71e864bb5d879a9d9b4e9a16d7002d61d5f68c7286842276247b",
    "shard-00-01-00/leaves.bin": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "shard-00-01-00/manifest.json": "4ad167b2f369acae66c5177da71fb6fc634c0cd249ec7ab0b238d0d1c497b249",
    "shard-00-01-00/weights.safetensors": "fe258e9544c95dfdfe61bd6c83b9d75e3900feeba97db78a48993eae3ad2ba5d",
}
ARTIFACT_ROOT = "30bded20f8d8b3e528b5ba735561731ce45673affb990a6a0d93aff808221af9"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy: the test's data are links, which no reader of artifacts follows."""
    return pathlib.Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("golden") / "format-1"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, helpers.Written]:
    """The same tensors by today's writer, each shard as an artifact of its own."""
    folder = tmp_path_factory.mktemp("written")
    return {shard: described.write_shard(shard, folder / shard) for shard in described.SHARDS}


def elements(data: bytes, tensor: described.Tensor) -> bytes:
    """The bytes of a tensor's elements in row-major order."""
    size = ITEM_BYTES[tensor.dtype]
    strides = [stride * size for stride in tensor.strides]
    return np.ndarray(tensor.shape, f"V{size}", data, tensor.offset, strides).tobytes()


def described_elements(shard: str) -> dict[str, bytes]:
    sizes = described.nbytes_of(shard)
    tensors = described.tensors(shard)
    return {name: elements(described.storage(t.storage, sizes[t.storage]).tobytes(), t) for name, t in tensors.items()}


def test_no_byte_has_changed(golden: pathlib.Path) -> None:
    found = {str(path.relative_to(golden)): path for path in golden.rglob("*") if path.is_file()}
    assert {name: helpers.sha256(path.read_bytes()) for name, path in found.items()} == SHA256
    assert sum(path.stat().st_size for path in found.values()) < 300 << 10


@pytest.mark.parametrize("shard", described.SHARDS)
def test_it_opens_as_described(golden: pathlib.Path, shard: str) -> None:
    with coldsnap.open(golden, shard=shard) as artifact:
        assert artifact.artifact_root == ARTIFACT_ROOT
        assert artifact.shards == described.SHARDS
        assert artifact.identity == described.IDENTITY
        assert artifact.scalars == described.SCALARS
        tensors = described.tensors(shard)
        assert set(artifact) == set(tensors)
        for name, tensor in tensors.items():
            info = artifact[name]
            assert (info.dtype, list(info.shape), info.role, info.attrs) == (
                *(tensor.dtype, tensor.shape, tensor.role, tensor.attrs),
            )
            assert 0 in tensor.shape or list(info.strides) == tensor.strides


def test_it_verifies(golden: pathlib.Path) -> None:
    receipt = coldsnap.verify(golden)
    assert receipt.ok
    assert receipt.artifact_root == ARTIFACT_ROOT


@pytest.mark.parametrize("backend", ["python", "auto"])
def test_it_restores(golden: pathlib.Path, backend: str) -> None:
    shard = described.SHARDS[0]
    data = {name: np.zeros(nbytes, np.uint8) for name, nbytes in described.nbytes_of(shard).items()}
    numpy_of = {"F64": "f8", "F32": "f4", "I16": "i2", "I64": "i8", "BF16": "u2", "C64": "c8", "C128": "c16"}
    numpy_of |= {"BOOL": "?", "F16": "f2", "U16": "u2", "U32": "u4", "U64": "u8", "I8": "i1", "I32": "i4"}
    targets = {}
    given = {name: t for name, t in described.tensors(shard).items() if not t.dtype.startswith("F6")}  # numpy has none
    for name, t in given.items():
        dtype = np.dtype(numpy_of.get(t.dtype, "u1"))
        strides = [stride * dtype.itemsize for stride in t.strides]
        targets[name] = np.ndarray(t.shape, dtype, data[t.storage], t.offset, strides)
    with coldsnap.open(golden, shard=shard) as artifact:
        assert coldsnap.hydrate(artifact, targets, backend=backend, partial=True).ok
    for name in {t.storage for t in given.values()}:
        assert data[name].tobytes() == described.storage(name, data[name].nbytes).tobytes(), name


def test_the_reference_reader_reads_it(golden: pathlib.Path) -> None:
    rows = list(page.reference_reader()["tensors"](golden))
    expected = [(name, data) for shard in described.SHARDS for name, data in described_elements(shard).items()]
    found = []
    for name, dtype, shape, strides, _, offset, extent in rows:
        tensor = described.Tensor("", dtype, shape, strides, offset)
        found.append((name, elements(extent, tensor)))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("shard", described.SHARDS)
@pytest.mark.parametrize("name", FILES)
def test_todays_writer_writes_the_same(written: dict[str, helpers.Written], shard: str, name: str) -> None:
    found = (written[shard].blob_path.parent / name).read_bytes()
    assert found == (GOLDEN / shard / name).read_bytes()


def test_todays_writer_gives_the_same_roots(written: dict[str, helpers.Written]) -> None:
    assert described.artifact_json(written) == (GOLDEN / "artifact.json").read_bytes()
