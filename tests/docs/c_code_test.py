"""The programs of docs/c-abi.md compile without a warning, as the page says, and agree with Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import coldsnap
from coldsnap import _native
from coldsnap.tensors import native_specs
from tests.docs import pages

TOP = pages.runfiles()
BLOCKS = [block for page in pages.code_pages() for block in pages.blocks(page, TOP, "c")]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


def compiled(folder: Path, name: str, block: pages.Block) -> Path:
    """A program of the page, beside the library and what that needs."""
    for library in ("LIBRARY", "ISAL"):
        shutil.copy(TOP / os.environ[library], folder)
    (folder / f"{name}.c").write_text(block.code)
    command = [
        "cc",
        *STRICT,
        f"-I{TOP}",
        f"{name}.c",
        "-L.",
        "-lcoldsnap_hydration",
        "-Wl,-rpath-link,.",
        "-o",
        name,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.where}:\n{done.stderr}"
    return folder / name


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's first program."""
    restore, _ = BLOCKS
    return compiled(tmp_path_factory.mktemp("program"), "restore", restore)


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


def test_it_captures(tmp_path: Path) -> None:
    _, block = BLOCKS
    program = compiled(tmp_path, "capture", block)
    done = run(program, tmp_path / "artifact")
    assert done.returncode == 0, done.stderr
    restored = {"weights": np.zeros((1000, 250), np.float32)}
    receipt = coldsnap.hydrate(tmp_path / "artifact", restored)
    assert done.stdout.startswith(f"{receipt.artifact_root}, by ")
    assert np.array_equal(restored["weights"], np.arange(250_000, dtype=np.float32).reshape(1000, 250))
    again = run(program, tmp_path / "artifact")
    assert again.returncode == 1
    assert again.stderr.startswith("exists: ")


def test_the_library_finds_what_stands_beside_it(program: Path) -> None:
    needs = subprocess.run(
        ["ldd", str(program.parent / "libcoldsnap_hydration.so")], capture_output=True, text=True, check=True
    )
    assert f"libisal.so.2 => {program.parent}/libisal.so.2 " in needs.stdout
