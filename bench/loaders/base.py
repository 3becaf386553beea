"""What a loader of the comparison does, and what all of them need to know of a safetensors file.

A loader runs in a process of its own (worker.py). Its package is imported when it starts and not before, so that a
package which is not there, or breaks on import, is that loader's reason and nobody else's failure.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

# safetensors' names of types to torch's. F4 and F6 are left out: what a file's shape counts differs there.
_TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


class Loader:
    """One way of bringing all tensors of a safetensors file into memory. A subclass gives names, `start` and `read`.

    Attributes:
        name: How tables call it.
        distribution: The installed package whose version counts.
        checks: Which bytes it compares with a digest while it loads, in words.
        how: The path that the last load took, as far as the package tells.
        tensors: What the last load gave, by name; kept until `release`.
    """

    name = ""
    distribution = ""
    checks = "none"

    def __init__(self) -> None:
        self.how = ""
        self.tensors: dict[str, Any] = {}

    @property
    def version(self) -> str:
        """The version of its package, or ``unknown``."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return "unknown"

    def available(self, device: str) -> str | None:
        """Import and make ready what every load uses.

        Args:
            device: As torch names it: ``cpu`` or ``cuda:N``.
        Returns:
            None, or the reason why this loader can't run here.
        """
        try:
            self.start(device)
        except Exception as error:  # whatever somebody else's package raises is its answer
            return describe(error)
        return None

    def load(self, path: Path, device: str) -> int:
        """Load all tensors of the file, keep them, and give the sum of their bytes."""
        self.tensors = self.read(path, device)
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def release(self) -> None:
        """Let go of the tensors."""
        self.tensors = {}

    def start(self, device: str) -> None:
        """Import the package; raise what speaks against using it."""
        raise NotImplementedError

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Give the file's tensors, by name, as torch tensors on the device that own their memory."""
        raise NotImplementedError


class Entry(NamedTuple):
    """One tensor of a safetensors file; `offset` in bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def entries_of(header: bytes) -> list[Entry]:
    """List the tensors of a safetensors file, padding that coldsnap declares left out.

    Args:
        header: The file's first bytes; at least its length field and its JSON.
    """
    length = int.from_bytes(header[:8], "little")
    found = []
    for name, fields in json.loads(header[8 : 8 + length]).items():
        if name != "__metadata__" and not name.startswith("__pad__."):
            begin, end = fields["data_offsets"]
            found.append(Entry(name, fields["dtype"], tuple(fields["shape"]), 8 + length + begin, end - begin))
    return found


def read_header(path: Path) -> bytes:
    """Read the length field and the JSON of a safetensors file."""
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def torch_dtype(name: str) -> Any:
    """Give torch's type for a name that safetensors uses.

    Raises:
        ValueError: This torch has none; the message has the known ones.
    """
    import torch

    found = getattr(torch, _TORCH_NAMES.get(name, ""), None)
    if found is None:
        raise ValueError(f"dtype {name} has no torch type here; known are {', '.join(_TORCH_NAMES)}")
    return found


def describe(error: BaseException) -> str:
    """Put an exception into one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
