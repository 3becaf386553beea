"""The code of docs/ that needs torch, on the device in COLDSNAP_TEST_DEVICE: a GPU as the page has it, or the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.docs import pages

TOP = pages.runfiles()
DEVICE = os.environ["COLDSNAP_TEST_DEVICE"]
BLOCKS = [
    block for page in pages.code_pages() for block in pages.blocks(page, TOP, "python") if "import torch" in block.code
]


def test_there_is_code_to_test() -> None:
    assert [block.where.partition(":")[0] for block in BLOCKS] == ["docs/gpu.md"]
    assert BLOCKS[0].code.count('"cuda:0"') == 1


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_python(block: pages.Block, tmp_path: Path) -> None:
    if DEVICE != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no GPU")
    code = block.code.replace('"cuda:0"', f'"{DEVICE}"')
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{block.where}:\n{done.stderr}"
