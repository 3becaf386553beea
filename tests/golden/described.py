"""The tensors of the golden artifact, shard by shard. Nothing here may change: the artifact in `format-1` is these."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

from coldsnap.artifact import ITEM_BYTES
from tests.format import helpers

SHARDS = ("shard-00-00-00", "shard-00-01-00")
IDENTITY = {"model": "golden", "revision": "1", "files": [{"name": "a/b", "sha256": "0" * 64}], "é": None}
SCALARS = {"inf": "f64:7ff0000000000000", "layers": 2, "scale": "f64:3ff0000000000000"}


class Tensor(NamedTuple):
    """A view of a storage: shape and strides in elements, offset in bytes."""

    storage: str
    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int = 0
    role: str = ""
    attrs: tuple[str, ...] = ()


def storage(name: str, nbytes: int) -> np.ndarray:
    """Bytes that differ from storage to storage; those of a BOOL are 0 and 1."""
    data = (np.arange(nbytes) + sum(name.encode())) % 251
    return (data % 2 if name == "dtype.BOOL" else data).astype(np.uint8)


def tensors(shard: str) -> dict[str, Tensor]:
    """By name, in an order that is not the manifest's."""
    if shard == SHARDS[1]:
        return {"nothing": Tensor("nothing", "F32", [0, 3], [3, 1])}
    found = {f"dtype.{dtype}": Tensor(f"dtype.{dtype}", dtype, [3], [1]) for dtype in ITEM_BYTES}
    found["weight"] = Tensor("weight", "U8", [65536], [1], role="parameter", attrs=("persistent=1", "requires_grad=0"))
    found["weight.half"] = Tensor("weight", "BF16", [16, 1024], [1024, 1], 32768)
    found["strided"] = Tensor("strided", "F32", [4, 8], [1, 4])
    found["overlap.first"] = Tensor("overlap", "I16", [30], [1], 0, "buffer", ("persistent=0",))
    found["overlap.second"] = Tensor("overlap", "I16", [5, 4], [6, 1], 8)
    found["part"] = Tensor("uncovered", "U8", [10], [1], 100)
    found["scalar"] = Tensor("scalar", "F64", [], [])
    found["scalar.F4"] = Tensor("scalar.F4", "F4", [], [])
    found["empty"] = Tensor("empty", "F32", [2, 0, 7], [0, 7, 1])
    found['quoted " back\\slash \u0001 é \U0001f600'] = Tensor("quoted", "U8", [513], [1])
    found["__private"] = Tensor("private", "U8", [1], [1])
    return found


def nbytes_of(shard: str) -> dict[str, int]:
    """Bytes of each storage: as many as its tensors reach, and some more where it is called uncovered."""
    sizes: dict[str, int] = {}
    for tensor in tensors(shard).values():
        reach = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides, strict=True)) + 1
        end = 0 if 0 in tensor.shape else tensor.offset + reach * ITEM_BYTES[tensor.dtype]
        sizes[tensor.storage] = max(sizes.get(tensor.storage, 0), end)
    return {name: nbytes + (90 if name == "uncovered" else 0) for name, nbytes in sizes.items()}


def write_shard(shard: str, folder: pathlib.Path) -> helpers.Written:
    """Write the tensors of one shard as an artifact with one shard at ``folder``."""
    data = {name: storage(name, nbytes) for name, nbytes in nbytes_of(shard).items()}
    specs = [
        (
            *(name, t.dtype, t.shape, t.strides, data[t.storage].ctypes.data + t.offset, data[t.storage].ctypes.data),
            *(data[t.storage].nbytes, number, t.role, list(t.attrs)),
        )
        for number, (name, t) in enumerate(tensors(shard).items())
    ]
    return helpers.write(folder, specs, json.dumps(IDENTITY), json.dumps(SCALARS))


def artifact_json(shards: dict[str, helpers.Written]) -> bytes:
    """The artifact.json of several shards that were written one by one."""
    records = [{**written.artifact["shards"][0], "name": shard} for shard, written in sorted(shards.items())]
    root: dict[str, Any] = {
        "format": 1,
        "identity": helpers.sha256(helpers.canonical(IDENTITY)),
        "shards": [[record["name"], record["shard_root"]] for record in records],
    }
    return helpers.canonical(
        {
            "artifact_root": helpers.sha256(helpers.canonical(root)),
            "capture": {"by": "tests/golden"},
            "format": 1,
            "identity": IDENTITY,
            "required": [],
            "shards": records,
        }
    )
