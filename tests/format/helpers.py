"""Artifacts written by the extension module, read back with the standard library alone."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from coldsnap import _native

LEAF_BYTES = 65536
SHARD = "shard-00-00-00"

# As _native.write_artifact takes a tensor: name, dtype, shape, strides, address, storage_address, storage_nbytes,
# object, role, attrs.
Spec = tuple[str, str, list[int], list[int], int, int, int, int, str, list[str]]


def spec_of_bytes(name: str, data: np.ndarray, dtype: str, shape: list[int], number: int) -> Spec:
    """A contiguous tensor of any dtype over all of ``data``, which the caller keeps alive."""
    strides = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
    return (name, dtype, shape, strides, data.ctypes.data, data.ctypes.data, data.nbytes, number, "", [])


def write(folder: pathlib.Path, specs: Sequence[Spec], identity: str = "{}", scalars: str = "{}") -> Written:
    """Write an artifact of one shard at ``folder`` and take it apart."""
    receipt = _native.write_artifact(str(folder), list(specs), identity, scalars, "{}")
    return Written(folder, receipt)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the blob's header; offsets in bytes from the start of the data."""

    dtype: str
    shape: list[int]
    begin: int
    end: int


class Written:
    """The files of an artifact, and what they say."""

    def __init__(self, folder: pathlib.Path, receipt: dict[str, Any]) -> None:
        self.folder = folder
        self.receipt = receipt
        self.blob_path = folder / SHARD / "weights.safetensors"
        self.blob = self.blob_path.read_bytes()
        self.leaves = (folder / SHARD / "leaves.bin").read_bytes()
        self.manifest_text = (folder / SHARD / "manifest.json").read_bytes()
        self.manifest = json.loads(self.manifest_text)
        self.artifact = json.loads((folder / "artifact.json").read_bytes())

    @property
    def header(self) -> dict[str, Entry]:
        """The entries in their order, without ``__metadata__``; no name stands twice."""
        pairs = json.loads(self.blob[8 : self.manifest["data_start"]], object_pairs_hook=_no_key_twice)
        assert next(iter(pairs)) == "__metadata__"
        assert pairs.pop("__metadata__") == {"format": "pt", "coldsnap.format": "1"}
        return {name: Entry(e["dtype"], e["shape"], *e["data_offsets"]) for name, e in pairs.items()}

    def data_of(self, entry: Entry) -> bytes:
        start = self.manifest["data_start"]
        return self.blob[start + entry.begin : start + entry.end]

    @property
    def extents(self) -> list[bytes]:
        columns = self.manifest["extents"]
        places = zip(columns["file_offset"], columns["nbytes"], strict=True)
        return [self.blob[begin : begin + nbytes] for begin, nbytes in places]

    def row(self, name: str) -> dict[str, Any]:
        """What the manifest says of one tensor."""
        columns = self.manifest["tensors"]
        index = columns["names"].index(name)
        return {key: column[index] for key, column in columns.items()}

    def files(self) -> list[bytes]:
        """Contents that the same tensors must give again."""
        return [self.blob, self.leaves, self.manifest_text, (self.folder / "artifact.json").read_bytes()]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def canonical(value: Any) -> bytes:
    """The text of the format for a value that has one (docs/format.md, "Canonical JSON")."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def leaves_of(data: bytes) -> bytes:
    """The leaf digests of an extent, one after the other."""
    pieces = (data[at : at + LEAF_BYTES] for at in range(0, len(data), LEAF_BYTES))
    return b"".join(hashlib.sha256(piece).digest() for piece in pieces)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), [name for name, _ in pairs]
    return found
