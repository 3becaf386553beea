"""A plugin of vLLM's that only these tests install: linear layers on the CPU keep their weights in ordinary tensors.

Without it the CPU build hands each weight to a native library and keeps a handle, or packs it into tiles where the
processor has them. CUDA keeps tensors, so it is with this plugin that a CPU exercises what a GPU would.
"""

from __future__ import annotations

import os

VARIABLE = "COLDSNAP_TEST_PLAIN_LAYERS"
TENSORS, HANDLES = "1", "handles"  # ordinary tensors; the native library's handles, whatever the processor has


def register() -> None:
    """Called by vLLM in each of its processes."""
    chosen = os.environ.get(VARIABLE)
    if chosen not in (TENSORS, HANDLES):
        return
    import torch
    from vllm import _custom_ops

    torch.cpu._is_amx_tile_supported = lambda: False
    if chosen == TENSORS:
        _custom_ops._supports_onednn = False
