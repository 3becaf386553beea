"""Run:ai model streamer: threads that read into a ring of host buffers, tensors moved on one by one."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from bench.loaders import base


class RunaiStreamer(base.Loader):
    """Its safetensors streamer with its defaults; every tensor that it yields belongs to the caller."""

    name = "runai-streamer"
    distribution = "runai-model-streamer"

    def start(self, device: str) -> None:
        """Import it."""
        self._streamer = importlib.import_module("runai_model_streamer").SafetensorsStreamer
        changed = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("RUNAI_STREAMER_")]
        self.how = ", ".join(changed) or "defaults"

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Take the tensors as they come."""
        with self._streamer() as streamer:
            streamer.stream_file(str(path), device=device)
            return dict(streamer.get_tensors())
