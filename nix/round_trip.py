"""Captures and restores one artifact by each backend that needs no device: the flake's check of its own package."""

import pathlib
import tempfile

import numpy as np

import coldsnap

source = {"w": np.arange(1_000_003, dtype=np.uint32)}
with tempfile.TemporaryDirectory() as folder:
    for backend in ("python", "buffered", "auto"):
        path = pathlib.Path(folder, backend)
        coldsnap.capture(source, path, backend=backend)
        found = {"w": np.zeros_like(source["w"])}
        receipt = coldsnap.hydrate(path, found, backend=backend, verify="crc32+sha256")
        assert (found["w"] == source["w"]).all(), backend
        print(f"restored {receipt.payload_bytes} bytes by {backend}")
