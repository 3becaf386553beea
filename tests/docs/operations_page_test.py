"""docs/operations.md says what coldsnap says: each symptom's text is in the code, and each command in its tables runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import coldsnap
from coldsnap import errors
from tests.docs import pages

TOP = pages.work_tree()
PAGE = TOP / "docs" / "operations.md"
HEAD = "| it says | which means | run | then |"
# Programs that look at a machine and change nothing; the second ones are not everywhere.
LOOKS = {"df", "id", "ls", "readlink"}
MAY_LACK = {"findmnt", "free", "nvidia-smi"}
_MARK = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of the page's last table; what stands in code marks in its cells."""

    says: str
    run: list[str]
    then: list[str]


def rows() -> list[Row]:
    found = []
    _, _, table = PAGE.read_text(encoding="utf-8").partition(HEAD + "\n")
    for line in table.splitlines()[1:]:
        if not line.startswith("| "):
            break
        says, means, run, then = line.strip("| ").split(" | ")
        (text,) = _MARK.findall(says)
        assert means, says
        assert says == f"`{text}`", says
        found.append(Row(text, _MARK.findall(run), _MARK.findall(then)))
    return found


ROWS = rows()


def sources(*folders: str) -> str:
    """The text of the core and of the package, with the string literals that follow each other joined."""
    files = [path for folder in folders for path in sorted((TOP / folder).rglob("*")) if path.suffix in (".cc", ".py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if not re.search(r"_test\.\w+$", path.name))
    return re.sub(r'"\s*\n\s*f?"', "", text)


SOURCE = sources("cc", "py")


def says(row: Row) -> str:
    return row.says


def commands() -> list[str]:
    """The commands of the table, each once. Those of a shell block, and a calibration, are code_test.py's."""
    found = dict.fromkeys(command for row in ROWS for command in (*row.run, *row.then) if " " in command)
    return [command for command in found if not command.startswith(("chmod ", "coldsnap calibrate"))]


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert len({row.says for row in ROWS}) == len(ROWS)
    assert all(len(row.run) == 1 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=says)
def test_the_text_is_in_the_code(row: Row) -> None:
    if re.fullmatch(r"[a-z0-9_]+", row.says):  # the code of a reason, or of an error
        assert f'"{row.says}"' in SOURCE or row.says in {kind.code for kind in errors.ERROR_CLASSES}
        return
    for part in re.split(r"…|; ", row.says):  # a remedy stands apart
        assert part.strip(" :,") in SOURCE, f"no code says {part!r}"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with what the page's commands name, and variables for a shell that finds `coldsnap`."""
    folder = tmp_path_factory.mktemp("machine")
    program = folder / "bin" / "coldsnap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coldsnap.cli "$@"\n')
    program.chmod(0o755)
    weights = {"w": np.arange(9.0)}
    coldsnap.capture(weights, folder / "artifact", identity={"model": "example"})
    coldsnap.capture(weights, store=folder / "store", identity={"model": "example"})
    (folder / "status.json").write_text('{"format": 1, "operation": "status"}')
    return folder, dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("command", commands())
def test_the_command_runs(command: str, machine: tuple[Path, dict[str, str]]) -> None:
    folder, env = machine
    name, *_ = words = command.split()
    assert name in {"coldsnap", *LOOKS, *MAY_LACK}, f"{command}: does it only look?"
    if name in MAY_LACK and shutil.which(name) is None:
        pytest.skip(f"this machine has no {name}")
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}:\n{done.stderr}"
