"""The program of docs/c-abi.md compiles without a warning, as the page says, and restores what Python wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from coldsnap import _native
from coldsnap.tensors import native_specs
from tests.docs import pages

TOP = pages.runfiles()
BLOCKS = [block for page in pages.code_pages() for block in pages.blocks(page, TOP, "c")]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's program, beside the library and what that needs."""
    folder = tmp_path_factory.mktemp("program")
    for library in ("LIBRARY", "ISAL"):
        shutil.copy(TOP / os.environ[library], folder)
    (block,) = BLOCKS
    (folder / "restore.c").write_text(block.code)
    command = [
        "cc",
        *STRICT,
        f"-I{TOP}",
        "restore.c",
        "-L.",
        "-lcoldsnap_hydration",
        "-Wl,-rpath-link,.",
        "-o",
        "restore",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.where}:\n{done.stderr}"
    return folder / "restore"


def run(program: Path, artifact: Path) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, LD_LIBRARY_PATH=str(program.parent))
    return subprocess.run([str(program), str(artifact)], env=env, capture_output=True, text=True, check=False)


def test_the_page_shows_how_it_is_built() -> None:
    (block,) = (block for block in pages.blocks(TOP / "docs" / "c-abi.md", TOP, "sh"))
    assert "cc -std=c99 -I. restore.c -L.build/bin/cc/abi -lcoldsnap_hydration -o restore\n" in block.code


def test_it_restores(program: Path, tmp_path: Path) -> None:
    tensors = {"large": np.arange(300_000, dtype=np.float32), "small": np.ones(7, np.uint8)}
    _native.write_artifact(str(tmp_path / "artifact"), native_specs(tensors), "{}", "{}", "{}")
    done = run(program, tmp_path / "artifact")
    assert done.returncode == 0, done.stderr
    assert "1200007 of 1200007 bytes\n" in done.stdout
    assert ": 1200007 bytes in 2 extents\n" in done.stdout


def test_it_says_what_is_wrong(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path / "absent")
    assert done.returncode == 1
    assert done.stderr.startswith("request_invalid: open artifact ")


def test_the_library_finds_what_stands_beside_it(program: Path) -> None:
    needs = subprocess.run(
        ["ldd", str(program.parent / "libcoldsnap_hydration.so")], capture_output=True, text=True, check=True
    )
    assert f"libisal.so.2 => {program.parent}/libisal.so.2 " in needs.stdout
