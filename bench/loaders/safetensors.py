"""safetensors itself: what most people load with, and what vLLM's default does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.loaders import base


class Safetensors(base.Loader):
    """`safe_open` and `get_tensor` for each name.

    On the CPU it maps the file and reads nothing: its tensors would be "there" in a millisecond and be read at first
    use. They are copied here, so that the time has the bytes in it and the mapping does not hold the page cache.
    """

    name = "safetensors"
    distribution = "safetensors"

    def start(self, device: str) -> None:
        """Import it."""
        import safetensors

        self._open = safetensors.safe_open
        self.how = "mapped, each tensor copied" if device == "cpu" else "mapped"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Get one tensor after the other."""
        with self._open(str(path), framework="pt", device=device) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        return {name: tensor.clone() for name, tensor in found.items()} if device == "cpu" else found
