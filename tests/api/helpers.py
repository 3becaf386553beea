"""Artifacts to restore, destinations that show whether they were touched, and damage."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native
from coldsnap.tensors import native_specs

KIB, MIB = 1 << 10, 1 << 20
LEAF_BYTES = 64 * KIB
UNTOUCHED, POISON = 0x55, 0xFF

BACKENDS = ("python", "buffered", "direct", "auto")
VERIFY_MODES = ("crc32", "crc32+sha256")
# Small enough that a test's blob is many times the ring.
SMALL_RING = {"chunk_bytes": 64 * KIB, "queue_depth": 2, "read_threads": 2}

Tensors = dict[str, np.ndarray]


def random_bytes(nbytes: int, seed: int = 7) -> np.ndarray:
    """Bytes that differ from piece to piece; the same for the same seed."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def mixed_tensors() -> Tensors:
    """Extents of many sizes, two of them shared by several names, and tensors without bytes."""
    sizes = (0, 1, 511, 512, 65535, 65536, 65537, 3 * LEAF_BYTES + 17)
    tensors = {f"size.{nbytes}": random_bytes(nbytes, nbytes) for nbytes in sizes}
    tensors["half"] = random_bytes(2 * 1000, 1).view(np.float16)
    tensors["table"] = random_bytes(8 * 30_000, 2).view(np.int64).reshape(100, 300)
    tensors["table.row"] = tensors["table"][3]
    tensors["table.columns"] = tensors["table"][:, 10:20]
    tensors["table.turned"] = tensors["table"].T
    tensors["tied"] = tensors["half"]
    tensors["no.rows"] = np.zeros((0, 5), np.float32)
    return tensors


def write(path: pathlib.Path, tensors: Mapping[str, Any], **identity: str) -> pathlib.Path:
    """Write an artifact with one shard at ``path``."""
    _native.write_artifact(str(path), native_specs(tensors), json.dumps(identity), "{}", "{}")
    return path


def untouched_like(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """Destinations laid out and aliased as ``tensors`` are, every byte `UNTOUCHED`."""
    owners: dict[int, np.ndarray] = {}
    found: Tensors = {}
    for name, tensor in tensors.items():
        owner = tensor
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        copy = owners.setdefault(id(owner), np.full(owner.nbytes, UNTOUCHED, np.uint8))
        offset = tensor.ctypes.data - owner.ctypes.data if tensor.size else 0
        found[name] = np.ndarray(tensor.shape, tensor.dtype, copy, offset, tensor.strides)
    return found


def every_byte_is(tensors: Mapping[str, np.ndarray], value: int) -> bool:
    """Whether all bytes of all tensors are ``value``."""
    return all((np.ascontiguousarray(tensor).reshape(-1).view(np.uint8) == value).all() for tensor in tensors.values())


def assert_same_bytes(tensors: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Compare bit for bit, so that NaNs count too."""
    for name, tensor in expected.items():
        assert tensors[name].tobytes() == tensor.tobytes(), name


def file_of(artifact: pathlib.Path, name: str) -> pathlib.Path:
    """Where an artifact with one shard keeps the file."""
    return artifact / name if name == "artifact.json" else artifact / "shard-00-00-00" / name


@contextlib.contextmanager
def writable(path: pathlib.Path):
    """Artifacts are read-only; damage needs a moment of writing."""
    mode = path.stat().st_mode
    path.chmod(0o644)
    try:
        yield
    finally:
        path.chmod(mode)


def flip_bit(path: pathlib.Path, offset: int, bit: int = 0) -> None:
    """Change one bit of a file; the same call again changes it back."""
    with writable(path), path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def truncate(path: pathlib.Path, nbytes: int) -> None:
    """Give a file another size."""
    with writable(path):
        os.truncate(path, nbytes)


def needs(backend: str, folder: pathlib.Path) -> None:
    """Skip, with the reason, where the file system of ``folder`` refuses what ``backend`` is about to do."""
    if backend == "direct" and (why := why_no_direct(folder)):
        pytest.skip(f"direct I/O in the test's folder: {why}")


def why_no_direct(folder: pathlib.Path) -> str | None:
    """Why one aligned direct read of a file in ``folder`` fails; None when it works."""
    path = folder / "direct-probe"
    path.write_bytes(bytes(64 * KIB))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 64 * KIB) as page_aligned:
                os.preadv(fd, [page_aligned], 0)
        finally:
            os.close(fd)
    except OSError as error:
        return error.strerror
    finally:
        path.unlink()
    return None


def comparable(receipt: coldsnap.Receipt) -> dict[str, Any]:
    """What two providers must agree on: everything but route, provider, reasons, times and settings."""
    differs = {"routes", "provider", "reasons", "settings", "stages_s", "wall_s", "bytes_per_second", "limiting_stage"}
    found = {key: value for key, value in receipt.as_dict().items() if key not in differs}
    found["versions"].pop("native_library", None)  # of the provider that calls one
    return found


def codes(receipt: coldsnap.Receipt) -> list[str]:
    """The codes of the reasons, in order."""
    return [reason["code"] for reason in receipt.reasons]
