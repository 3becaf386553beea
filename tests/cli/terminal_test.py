"""The commands on a terminal of 80 columns: nothing is wider, NO_COLOR is honoured, and the progress line ends."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest

import coldsnap
from coldsnap.artifact import shard_names

COLUMNS = 80
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)\d(?:;\d+)*m")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    weights = {f"model.layers.{index}.self_attn.qkv_proj.weight{'_' * 60}": np.ones((2, 300)) for index in range(3)}
    identity = {"model": "example", "note": "n" * 200}
    coldsnap.capture(weights, tmp_path / "artifact", identity=identity)
    coldsnap.capture(weights, store=tmp_path / "store", identity=identity)
    return tmp_path / "artifact"


def on_terminal(folder: pathlib.Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code and all that the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "COLDSNAP_STATE_DIR": str(folder / "state"), **variables}
    command = [sys.executable, "-m", "coldsnap.cli", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        got = b""
        try:
            while piece := os.read(ours, 65536):
                got += piece
        except OSError:
            pass  # the terminal has no other end any more
        os.close(ours)
    return process.returncode, got.decode()


def shown(text: str) -> list[str]:
    """What stands on the screen, line by line."""
    return [line.rpartition("\r")[2] for line in _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("inspect", "artifact"),
        ("inspect", "--all", "artifact"),
        ("verify", "artifact"),
        ("capabilities", "--path=."),
        ("store", "ls", "--store=store"),
        ("store", "verify", "--store=store"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=["colour", "no_colour"])
def test_nothing_is_wider_than_the_terminal(
    arguments: tuple[str, ...], variables: dict[str, str], path: pathlib.Path
) -> None:
    code, text = on_terminal(path.parent, *arguments, **variables)
    assert code == 0, text
    lines = shown(text)
    assert any(line.strip() for line in lines)
    assert max(map(len, lines)) <= COLUMNS
    if variables:
        assert not _COLOUR.search(text)


def test_a_long_name_is_folded_and_whole(path: pathlib.Path) -> None:
    _, text = on_terminal(path.parent, "inspect", "artifact")
    together = "".join(line[:60].strip() for line in shown(text))
    with coldsnap.open(path, shard=shard_names(path)[0]) as artifact:
        for name in artifact:
            assert name[:40] in together
    assert text.count("_") >= 3 * 60


def test_progress_ends_before_the_answer(path: pathlib.Path) -> None:
    code, text = on_terminal(path.parent, "verify", "artifact")
    assert code == 0
    before, _, answer = text.rpartition("\r\nintact: ")
    assert re.search(r"\r100 %  0\.00 of 0\.00 GB  \d+\.\d\d GB/s", before)
    assert answer.count("\n") == 1
