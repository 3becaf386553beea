"""The folder that the requests of the corpus are answered in, and receipts without what differs from run to run."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import coldsnap

_VOLATILE = "..."


def make(folder: pathlib.Path) -> None:
    """Fill a folder with what the requests name; README.md lists it."""
    table = np.arange(30_000, dtype=np.float32).reshape(100, 300)
    tensors = {"bias": np.arange(7, dtype=np.int8), "empty": np.zeros((0, 3), np.float16), "table": table}
    save_file(tensors, str(folder / "model.safetensors"))
    np.savez(folder / "model.npz", bias=tensors["bias"], table=table)
    (folder / "short.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    for name in ("artifact", "damaged", "unreadable"):
        coldsnap.capture(tensors, folder / name, identity={"model": f"the {name} example"})
    blob = folder / "damaged" / "shard-00-00-00" / "weights.safetensors"
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(65536 + 100)
        file.write(b"\xee")
    description = folder / "unreadable" / "artifact.json"
    description.chmod(0o644)
    description.write_bytes(b"{}")


def environment(folder: pathlib.Path) -> dict[str, str]:
    """Variables for a process that answers in ``folder``: the state beside it, and no setting of anybody's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COLDSNAP_")}
    return kept | {"COLDSNAP_STATE_DIR": str(folder.parent / "state")}


def ask(folder: pathlib.Path, data: bytes, *flags: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run ``coldsnap request -`` in ``folder``."""
    command = [sys.executable, "-m", "coldsnap.cli", "request", "-", *flags]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), input=data, capture_output=True, check=False, timeout=60, **more
    )


def steady(line: bytes, folder: pathlib.Path) -> dict[str, Any]:
    """The receipt with ``"..."`` where the value is of this run or machine alone; null and empty stay what they are."""
    found: dict[str, Any] = json.loads(line.decode().replace(str(folder.parent), _VOLATILE))
    found["reasons"] = [each for each in found["reasons"] if each["code"] != "limit_unknown"]
    for name in ("wall_s", "bytes_per_second", "ceiling_ratio", "limiting_stage"):
        found[name] = _hidden(found[name])
    for name in ("stages_s", "residency", "versions", "machine"):
        found[name] = {key: _hidden(value) for key, value in found[name].items() if key not in ("numpy", "torch")}
    if found["report"] is not None and found["operation"] not in ("capture", "hydrate"):
        found["report"] = {key: _hidden(value) for key, value in found["report"].items()}
    return found


def _hidden(value: Any) -> Any:
    return value if value in (None, [], {}) else _VOLATILE
