"""The code of README.md and docs/ runs as it stands: Python in a fresh interpreter, commands of coldsnap in a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import coldsnap
from coldsnap import calibrate
from tests.docs import pages, tables

TOP = pages.runfiles()


def every(language: str) -> list[pages.Block]:
    return [block for page in pages.code_pages() for block in pages.blocks(page, TOP, language)]


def where(block: pages.Block) -> str:
    return block.where


PYTHON = [block for block in every("python") if "import torch" not in block.code]  # torch_code_test.py has those
SHELL = every("sh")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Variables for a shell that finds `coldsnap` on its PATH as after an installation."""
    program = tmp_path / "bin" / "coldsnap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coldsnap.cli "$@"\n')
    program.chmod(0o755)
    return dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}")


def test_there_is_code_to_test() -> None:
    pages_with_python = {block.where.partition(":")[0] for block in every("python")}
    assert {"README.md", "docs/errors.md", "docs/format.md", "docs/gpu.md", "docs/settings.md"} <= pages_with_python
    assert any(block.where.startswith("README.md") for block in SHELL)


@pytest.mark.parametrize("block", PYTHON, ids=where)
def test_python(block: pages.Block, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", block.code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{block.where}:\n{done.stderr}"


@pytest.mark.parametrize("block", SHELL, ids=where)
def test_shell_can_be_read(block: pages.Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.where}:\n{done.stderr}"


@pytest.mark.parametrize("block", SHELL, ids=where)
def test_shell_names_flags_that_exist(block: pages.Block) -> None:
    for words in pages.commands(block):
        is_calibrate = "//bench:calibrate" in words or [Path(words[0]).name, *words[1:2]] == ["coldsnap", "calibrate"]
        if is_calibrate:
            flags = [word for word in words[2:] if word.startswith("--") and word != "--"]
            assert calibrate.parse_flags(["calibrate", *flags]) is not None or "--help" in flags


def test_small_commands_run(shell: dict[str, str], tmp_path: Path) -> None:
    """What needs no drive, GPU or package: everything but these is looked at, not run."""
    capture_what_the_pages_show(tmp_path)
    ran = 0
    for block in SHELL:
        for words in pages.commands(block):
            if words[0] != "coldsnap" or (words[1] == "calibrate" and "--device=host" not in words[2:]):
                continue
            done = subprocess.run(words, env=shell, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block.where}: {words}:\n{done.stderr}"
            ran += 1
    assert ran >= 2
    assert (tmp_path / "results" / "results.json").is_file()  # of docs/gpu.md's calibration without a GPU


def capture_what_the_pages_show(folder: Path) -> None:
    """The artifact and the store that docs/commands.md works on."""
    weight = np.zeros((500, 100), np.float32)
    weights = {"weight": weight, "head": weight[0], "bias": np.ones(9)}
    coldsnap.capture(weights, folder / "artifact", identity={"model": "example"})
    coldsnap.capture(weights, store=folder / "store", identity={"model": "example"})


def test_commands_page_shows_what_inspect_prints(shell: dict[str, str], tmp_path: Path) -> None:
    capture_what_the_pages_show(tmp_path)
    command = ["coldsnap", "inspect", "artifact"]
    done = subprocess.run(command, env=shell, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = next(block for block in pages.blocks(TOP / "docs" / "commands.md", TOP, "text"))
    printed = done.stdout.splitlines()
    for line in shown.code.splitlines():
        # Digests, times and what is cached differ from run to run.
        name = line.partition("  ")[0]
        same = name if name in ("artifact", "captured", "manifest", "trust", "in memory") else " ".join(line.split())
        assert any(" ".join(each.split()).startswith(same) for each in printed), f"{line!r}:\n{done.stdout}"


def test_readme_shows_what_calibrate_prints(shell: dict[str, str], tmp_path: Path) -> None:
    command = ["coldsnap", "calibrate", "--bytes=4MiB", "--samples=1", "--device=host", f"--path={tmp_path}"]
    done = subprocess.run(command, env=shell, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = next(block for block in pages.blocks(TOP / "README.md", TOP, "text") if "blob:" in block.code)
    # Numbers differ, and what a route or a drive can do: compare the words that every run prints.
    printed = {_words(line) for line in done.stdout.splitlines()}
    for line in shown.code.splitlines():
        fixed = line.startswith(("ceiling ", "route ", "every restore", "best route"))
        assert not fixed or _words(line) in printed, f"no run prints {line!r}:\n{done.stdout}"


def _words(line: str) -> str:
    first = line.partition(";")[0].partition(":")[0]
    return " ".join(re.sub(r"[\d.]+", "#", first).split())


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_the_codes_own(name: str) -> None:
    page = TOP / "docs" / f"{tables.PAGE_OF.get(name, name)}.md"
    text = page.read_text(encoding="utf-8")
    new, names = tables.rewrite(text)
    assert names.count(name) == 1
    assert new == text, f"docs/{page.name} is old; run: ./bazelw run //tests/docs:update"


def test_every_variable_has_its_line() -> None:
    text = (TOP / "docs" / "settings.md").read_text(encoding="utf-8")
    tested = {found for found in re.findall(r"COLDSNAP_[A-Z0-9_]*[A-Z0-9]\b(?!_)", text) if "_TEST_" not in found}
    assert tested == tables.settings.KNOWN


@pytest.mark.parametrize("spec", (*tables.settings.HYDRATION, *tables.settings.START), ids=lambda spec: spec.name)
def test_settings_take_what_the_table_says(spec: tables.settings.Spec) -> None:
    taken, refused = tables.edge_values(spec.name)
    for value in taken:
        spec.parse(value, spec.name)
    for value in refused:
        with pytest.raises(tables.errors.RequestInvalidError):
            spec.parse(value, spec.name)
