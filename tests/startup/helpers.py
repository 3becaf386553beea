"""A matrix over the engine in fake/: whole runs of the program, in seconds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["RUNFILES_ROOT"])
PROGRAM = ROOT / "bench" / "vllm_startup_matrix.py"
FAKE = ROOT / "tests" / "startup" / "fake"
FAST = ("--requests=2", "--tokens=3", "--device=host", "--limit_s=60")


def checkpoint(folder: Path, towers: bool = True) -> Path:
    """What the matrix reads of a checkpoint; its weights are zeros that nobody loads."""
    model = folder / "models" / "m"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"vision_config": {}} if towers else {}))
    (model / "model.safetensors").write_bytes(bytes(8192))
    return model


def environment(folder: Path, **plan: Any) -> dict[str, str]:
    """For a matrix over the fake engine, which does as `plan` says."""
    kept = {name: value for name, value in os.environ.items() if name not in ("WHEEL", "FAKE_VLLM")}
    paths = [str(FAKE), *(path for path in sys.path if path)]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        **kept,
        "FAKE_VLLM": json.dumps(plan),
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(temporary),
        "VLLM_TEST_SETTING": "kept",
        "VLLM_TEST_PATH": "/left/out",
    }


def document(folder: Path) -> dict[str, Any]:
    """What the run wrote to its --output, the folder ``out``."""
    found: dict[str, Any] = json.loads((folder / "out" / "startup_matrix.json").read_text())
    return found


def left_in(folder: Path) -> list[str]:
    """What a run left, the model and the results aside."""
    mine = {"models", "models/m", "models/m/config.json", "models/m/model.safetensors", "tmp", "out"}
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return sorted(name for name in names - mine if not name.startswith("out/"))
