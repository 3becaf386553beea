"""Whether loaded tensors have the bytes of their file: SHA-256 per block, computed by nothing that is compared.

The digests are taken once, by plain reads. What stays of a tensor is overwritten before it is let go: memory that is
handed out again would otherwise still hold the right bytes, and a load that wrote nothing would pass.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.loaders import base

BLOCK = 8 << 20
_POISON = 0xFF

Digests = dict[str, list[str]]  # of each tensor's consecutive blocks, by name


def digests_of(path: Path) -> Digests:
    """Read a safetensors file and give the digests of all its tensors.

    Raises:
        OSError: It can't be read, or is shorter than it says.
    """
    entries = base.entries_of(base.read_header(path))
    with path.open("rb", buffering=0) as file, _pool() as pool:

        def digest(block: tuple[int, int]) -> str:
            return hashlib.sha256(_read(file.fileno(), *block)).hexdigest()

        return {
            entry.name: list(pool.map(digest, [(entry.offset + begin, size) for begin, size in _blocks(entry.nbytes)]))
            for entry in entries
        }


def first_difference(tensors: Mapping[str, Any], path: Path, wanted: Digests) -> str | None:
    """Compare all bytes of all tensors with the file's.

    Args:
        tensors: What was loaded, by name; more names than the file's are no harm.
        path: The file; only where a digest differs it is read again, to name the byte.
        wanted: From `digests_of`.
    Returns:
        None, or the first difference in words.
    """
    entries = base.entries_of(base.read_header(path))
    with _pool() as pool:
        for entry in entries:
            if entry.name not in tensors:
                return f"{entry.name} is missing"
            loaded = _bytes_of(tensors[entry.name])
            if loaded.numel() != entry.nbytes:
                return f"{entry.name} has {loaded.numel()} bytes, not {entry.nbytes}"
            blocks = _blocks(entry.nbytes)

            def digest(block: tuple[int, int], loaded: Any = loaded) -> str:
                begin, size = block
                return hashlib.sha256(loaded[begin : begin + size].cpu().numpy()).hexdigest()

            for block, found, right in zip(blocks, pool.map(digest, blocks), wanted[entry.name], strict=True):
                if found != right:
                    return _difference(entry, loaded, path, *block)
    return None


def poison(tensors: Mapping[str, Any]) -> None:
    """Overwrite all bytes of all tensors."""
    for tensor in tensors.values():
        _bytes_of(tensor).fill_(_POISON)


def _difference(entry: base.Entry, loaded: Any, path: Path, begin: int, size: int) -> str:
    """Name the first wrong byte of a block."""
    found = loaded[begin : begin + size].cpu().numpy().tobytes()
    with path.open("rb", buffering=0) as file:
        right = _read(file.fileno(), entry.offset + begin, size)
    differing = [at for at in range(size) if found[at] != right[at]]
    at = differing[0]
    return (
        f"byte {begin + at} of {entry.name} is {found[at]}, not {right[at]} "
        f"({len(differing)} of {size} bytes from {begin} on differ)"
    )


def _bytes_of(tensor: Any) -> Any:
    """View a tensor's elements as one row of bytes."""
    import torch

    return tensor.reshape(-1).view(torch.uint8)


def _blocks(nbytes: int) -> list[tuple[int, int]]:
    return [(begin, min(BLOCK, nbytes - begin)) for begin in range(0, nbytes, BLOCK)]


def _read(handle: int, offset: int, nbytes: int) -> bytes:
    found = os.pread(handle, nbytes, offset)
    if len(found) != nbytes:
        raise OSError(f"read {nbytes} bytes at offset {offset}: got {len(found)}")
    return found


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, os.cpu_count() or 1))
