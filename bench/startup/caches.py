"""The cache folders of an engine: bound before it starts, and counted before and after, so that "cold" can be checked.

Every library of an engine has a variable of its own for its folder, and falls back to one below the user's. All are
bound to folders below one root, also those that an engine may not use: what stays out of these folders is no cache of
the start.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLES = (
    "VLLM_CACHE_ROOT",  # compiled graphs, and what each architecture can do
    "TORCHINDUCTOR_CACHE_DIR",  # vLLM sets it anew, to a folder below its own, when it compiles
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
    "DG_JIT_CACHE_DIR",  # DeepGEMM
    "CUDA_CACHE_PATH",  # the driver's, for PTX
    "TILELANG_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "OUTLINES_CACHE_DIR",
    "HF_HOME",
    "XDG_CACHE_HOME",  # whatever has no variable of its own
)
Counts = dict[str, dict[str, int]]


def bind(root: Path) -> dict[str, str]:
    """The variables, each with a folder of its own below `root`; the folders are made."""
    found = {name: root / name.lower() for name in VARIABLES}
    for folder in found.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {name: str(folder) for name, folder in found.items()}


def count(root: Path) -> Counts:
    """Files and their bytes in each variable's folder below `root`; {} of a missing one counts as nothing."""
    return {name: _count(root / name.lower()) for name in VARIABLES}


def total(counts: Counts) -> int:
    """Files of all folders together."""
    return sum(each["files"] for each in counts.values())


def _count(folder: Path) -> dict[str, int]:
    files = nbytes = 0
    for where, _, names in os.walk(folder):
        for name in names:
            files += 1
            nbytes += os.lstat(os.path.join(where, name)).st_size
    return {"files": files, "bytes": nbytes}
