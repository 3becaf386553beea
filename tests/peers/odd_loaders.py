"""Loaders that do what no loader should, each in its own way."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bench.loaders.base import Loader
from bench.loaders.safetensors import Safetensors


class WrongByte(Safetensors):
    """Right at first; from its second load on the last byte of a tensor differs."""

    name = "wrong-byte"
    loads = 0

    def read(self, path: Path, device: str) -> dict[str, Any]:
        found = super().read(path, device)
        self.loads += 1
        if self.loads > 1:
            found["layers.0.weight"][-1] ^= 1
        return found


class WrongAndStuck(WrongByte):
    """Also fails when it is to let go."""

    name = "wrong-and-stuck"

    def release(self) -> None:
        if self.loads > 1:
            raise RuntimeError("stuck")


class Stale(Safetensors):
    """Reads once, and then hands out the same memory without reading."""

    name = "stale"
    kept: dict[str, Any] | None = None

    def read(self, path: Path, device: str) -> dict[str, Any]:
        self.kept = self.kept or super().read(path, device)
        return self.kept


class Forgetful(Safetensors):
    """Leaves one tensor out."""

    name = "forgetful"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        return {name: each for name, each in super().read(path, device).items() if name != "norms.03.weight"}


class Crashing(Loader):
    """Takes its process with it."""

    name = "crashing"
    distribution = "nobody-has-this"

    def start(self, device: str) -> None:
        pass

    def read(self, path: Path, device: str) -> dict[str, Any]:
        print("about to crash", flush=True)
        os.abort()


class Hanging(Crashing):
    """Never comes back."""

    name = "hanging"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        while True:
            time.sleep(60)


class Unprintable(Crashing):
    """Writes over everything that a process has open for its output, and closes its input, as cuFile does."""

    name = "unprintable"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        os.write(1, b'{"wrong": "output"}\n')
        os.close(0)
        raise RuntimeError(f"no such thing as {path}\nand a second line")


class Absent(Loader):
    """Needs a package that nobody has."""

    name = "absent"
    distribution = "nobody-has-this"

    def start(self, device: str) -> None:
        raise ModuleNotFoundError("No module named 'nobody_has_this'")
