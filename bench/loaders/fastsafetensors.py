"""fastsafetensors: whole files into one device buffer, by GDS or by threads and a bounce buffer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.loaders import base


class Fastsafetensors(base.Loader):
    """Its file loader with its defaults: 16 threads, 16 MiB bounce buffers, GDS where it finds the driver's device."""

    name = "fastsafetensors"
    distribution = "fastsafetensors"

    def start(self, device: str) -> None:
        """Import it."""
        self._package = importlib.import_module("fastsafetensors")

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Copy the file to the device and take views of that buffer, which they keep alive."""
        loader = self._package.SafeTensorsFileLoader(self._package.SingleGroup(), device=device)
        try:
            # Without the GDS device it takes another copier than was asked for, and says so only in a warning.
            self.how = loader.copier_class.__name__
            loader.add_filenames({0: [str(path)]})
            buffers = loader.copy_files_to_device()
            try:
                return {name: buffers.get_tensor(name) for name in loader.get_keys()}
            finally:
                buffers.close()
        finally:
            loader.close()
