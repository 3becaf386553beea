"""InstantTensor: direct reads by io_uring or libaio into a ring on the GPU. CUDA devices only."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.loaders import base


class InstantTensor(base.Loader):
    """Its defaults: direct reads, and tensors that are copied out of its ring.

    Without the copies tensors that are kept are overwritten as soon as the ring goes round.
    """

    name = "instanttensor"
    distribution = "instanttensor"
    policy: str | None = None

    def start(self, device: str) -> None:
        """Import it."""
        self._package = importlib.import_module("instanttensor")
        self._backend = None if self.policy is None else self._package.BackendPolicy[self.policy]

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Take the tensors in the order of the file."""
        with self._package.safe_open(str(path), framework="pt", device=device, backend=self._backend) as file:
            self.how = f"{file.backend.name}, chunk {file.chunk_size >> 20} MiB, depth {file.io_depth}"
            return dict(file.tensors())


class InstantTensorBuffered(InstantTensor):
    """Buffered reads, which its authors advise for files that are loaded again soon."""

    name = "instanttensor-buffered"
    policy = "BUFFERED"
