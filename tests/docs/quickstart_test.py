"""docs/quickstart.md, from top to bottom in one folder: a fresh virtual environment with the wheel, and nothing of ours.

The environment's own packages stand in for the package index: pip finds there what the wheel requires.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs import pages

TOP = pages.runfiles()
WHEEL = TOP / os.environ["WHEEL"]
LANGUAGES = ("sh", "python", "text")


def in_order() -> list[pages.Block]:
    page = TOP / pages.IN_ORDER
    found = [block for language in LANGUAGES for block in pages.blocks(page, TOP, language)]
    return sorted(found, key=lambda block: int(block.where.rpartition(":")[2]))


def environment(folder: Path) -> dict[str, str]:
    """What a user of that folder has, after `. venv/bin/activate`: neither our sources nor a way to a package index."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COLDSNAP_", "RUNFILES"))
    }
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    return kept | {
        "PATH": f"{folder}/venv/bin:{programs}:{os.environ['PATH']}",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def run(block: pages.Block, env: dict[str, str], folder: Path) -> str:
    """What a block prints, errors too; it has to succeed."""
    shell = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else ["python", "-W", "error", "-c"]
    command = [shutil.which(shell[0], path=env["PATH"]) or shell[0], *shell[1:], block.code]
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, f"{block.where}:\n{done.stdout}"
    return done.stdout


def check_shown(block: pages.Block, printed: str) -> None:
    """Every line of a block of output was printed, in this order; … stands for what differs from run to run."""
    lines = iter(printed.splitlines())
    for line in block.code.splitlines():
        pattern = re.compile(re.escape(" ".join(line.split())).replace("…", ".*"))
        assert any(pattern.fullmatch(" ".join(each.split())) for each in lines), f"{block.where}: {line!r}:\n{printed}"


def test_it_goes_as_the_page_says(tmp_path: Path) -> None:
    blocks, printed = in_order(), ""
    assert {block.language for block in blocks} == set(LANGUAGES)
    (tmp_path / WHEEL.name).symlink_to(WHEEL.resolve())
    env = environment(tmp_path)
    for block in blocks:
        if block.language == "text":
            check_shown(block, printed)
        else:
            printed = run(block, env, tmp_path)
    assert (tmp_path / "venv" / "bin" / "coldsnap").is_file()  # the wheel's command, not one of ours
    where = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", "import coldsnap; print(list(coldsnap.__path__))"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "venv") in where.stdout


@pytest.mark.parametrize("shown", ["done\nb", "a b", "a …\nmissing"])
def test_output_that_is_not_printed_is_seen(shown: str) -> None:
    with pytest.raises(AssertionError, match=r"page.md:3"):
        check_shown(pages.Block("page.md:3", "text", shown), "a one\nb\ndone\n")
    check_shown(pages.Block("page.md:3", "text", "a …\ndone"), "a one\nb\ndone\n")
