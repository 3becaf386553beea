"""The process that one loader runs in: a JSON line in, a JSON line out, until the input ends.

Commands and answers have file descriptors of their own. Packages print to the standard ones, and the cuFile library is
known to close descriptor 0 when its driver is missing.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.loaders import base, integrity


class Session:
    """The commands. Each gives the fields of its answer; what it raises becomes the field ``error``."""

    def __init__(self, loader: base.Loader) -> None:
        import torch  # seconds, and all processes of a comparison can spend them at the same time

        self._torch = torch
        self._loader = loader

    def open(self, path: str, device: str, digests: str) -> dict[str, Any]:
        """Make the device's context, and take note of what is to be loaded."""
        self._path, self._device = Path(path), device
        self._digests: integrity.Digests = json.loads(Path(digests).read_text(encoding="utf-8"))
        self._torch.zeros(1, device=device)
        self._wait()
        return {"torch": self._torch.__version__}

    def start(self) -> dict[str, Any]:
        """Start the loader, or say why it can't run."""
        begun = time.perf_counter()
        refused = self._loader.available(self._device)
        start_s = time.perf_counter() - begun
        return {"refused": refused, "start_s": start_s, "version": None if refused else self._loader.version}

    def load(self) -> dict[str, Any]:
        """Load, wait for the device, and give the seconds of both."""
        begun = time.perf_counter()
        nbytes = self._loader.load(self._path, self._device)
        self._wait()
        wall_s = time.perf_counter() - begun
        return {"wall_s": wall_s, "bytes": nbytes, "how": self._loader.how}

    def compare(self) -> dict[str, Any]:
        """Compare what was loaded with the file."""
        return {"wrong": integrity.first_difference(self._loader.tensors, self._path, self._digests)}

    def release(self) -> dict[str, Any]:
        """Let go of the tensors, so that the next load finds the memory as the first one did."""
        integrity.poison(self._loader.tensors)
        self._loader.release()
        gc.collect()
        if self._device != "cpu":
            self._wait()
            self._torch.cuda.empty_cache()
        return {}

    def _wait(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.synchronize(self._device)


def main(argv: Sequence[str]) -> int:
    """Serve one loader.

    Args:
        argv: The program's name, ``module:class`` of the loader, and the descriptors to read and to write.
    """
    module, _, kind = argv[1].partition(":")
    session = Session(getattr(importlib.import_module(module), kind)())
    with os.fdopen(int(argv[2]), encoding="utf-8") as commands, os.fdopen(int(argv[3]), "w", encoding="utf-8") as out:
        for line in commands:
            arguments = json.loads(line)
            command = arguments.pop("do")
            try:
                answer = getattr(session, command)(**arguments)
            except Exception as error:  # its words travel to the process that keeps the table
                answer = {"error": base.describe(error)}
            out.write(json.dumps(answer) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
