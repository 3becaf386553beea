"""KvikIO: the whole file into one buffer by cuFile or by threads; tensors are views of it."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from bench.loaders import base

_THREADS = 16  # what the other loaders take; its own default is one thread, and nobody would load a model by that


class KvikIO(base.Loader):
    """`CuFile.read` with a thread for each usable core, at most 16."""

    name = "kvikio"
    distribution = "kvikio-cu13"

    def start(self, device: str) -> None:
        """Import it and set its threads."""
        self._package = importlib.import_module("kvikio")
        defaults = importlib.import_module("kvikio.defaults")
        threads = min(len(os.sched_getaffinity(0)), _THREADS)
        defaults.set("num_threads", threads)
        # Whether cuFile takes the file is decided for each file, and not told.
        path = "without cuFile" if defaults.is_compat_mode_preferred() else "cuFile if it takes the file"
        self.how = f"{path}, {threads} threads, tasks of {defaults.get('task_size') >> 20} MiB"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Read the file from its start, so that every piece stays aligned, and divide it up."""
        import torch

        total = path.stat().st_size
        whole = torch.empty(total, dtype=torch.uint8, device=device)
        with self._package.CuFile(path) as file:
            got = file.read(whole.numpy() if device == "cpu" else whole)
        if got != total:
            raise OSError(f"read {total} bytes of {path.name}: got {got}")
        return {
            name: whole[offset : offset + nbytes].view(base.torch_dtype(dtype)).reshape(shape)
            for name, dtype, shape, offset, nbytes in base.entries_of(base.read_header(path))
        }
