"""Completion in the shells themselves: zsh on a terminal of its own, fish by its own question."""

from __future__ import annotations

import os
import pathlib
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from coldsnap import cli, completion_command

_TIMEOUT_S = 60.0
# What stands before the cursor, and all that may come of it.
CASES = [
    ("coldsnap ver", ["coldsnap verify"]),
    ("coldsnap --v", ["coldsnap --version"]),
    ("coldsnap verify --a", ["coldsnap verify --admit"]),
    ("coldsnap store un", ["coldsnap store unpack", "coldsnap store unquarantine"]),
    ("coldsnap store gc --max", ["coldsnap store gc --max-age-days", "coldsnap store gc --max-bytes"]),
    ("coldsnap completion z", ["coldsnap completion zsh"]),
    ("coldsnap inspect artif", ["coldsnap inspect artifact/"]),
    ("coldsnap c", [f"coldsnap {name}" for name in ("calibrate", "capabilities", "completion")]),
]
Completed = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the shells run, with a folder to complete, and the texts that they load."""
    found = tmp_path_factory.mktemp("shells")
    (found / "artifact").mkdir()
    for shell, text in completion_command.TEXTS.items():
        (found / f"completion.{shell}").write_text(text())
    return found


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return found


class Zsh:
    """An interactive zsh, which tells what stands in its line when it gets ^T."""

    _START = """
unsetopt BEEP ZLE_BRACKETED_PASTE; unset zle_bracketed_paste; PS1='' ; setopt MENU_COMPLETE
autoload -Uz compinit && compinit -u -D
source completion.zsh
tell() { print -r -- "$BUFFER" >>line; }
zle -N tell; bindkey -e; bindkey '^T' tell
print ready >>line
"""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._seen = folder, 0
        (folder / "start.zsh").write_text(self._START)
        self._terminal, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in ("ZDOTDIR", "FPATH")}
        environment |= {"TERM": "xterm", "HOME": str(folder)}
        command = [program("zsh"), "-f", "-i"]
        self._shell = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._type("source start.zsh\n")
        assert self._line() == "ready"

    def completed(self, text: str) -> list[str]:
        """What TAB makes of a line, one after the other until the first one comes again."""
        found: list[str] = []
        self._type(f"\x15{text}")
        while True:
            self._type("\t\x14")
            line = self._line()
            if not found and line.endswith(" "):  # the only one there is: zsh goes on to the next word
                return [line.rstrip()]
            if line in found:
                return sorted(found)
            found.append(line)

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait(_TIMEOUT_S)
        os.close(self._terminal)

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _line(self) -> str:
        end = time.monotonic() + _TIMEOUT_S
        screen = b""
        while time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.02)[0]:
                screen += os.read(self._terminal, 65536)
            file = self._folder / "line"
            lines = file.read_text().splitlines() if file.exists() else []
            if len(lines) > self._seen:
                self._seen += 1
                return lines[self._seen - 1]
        raise AssertionError(f"zsh says nothing; its screen: {screen!r}")


@pytest.fixture(scope="module")
def zsh(folder: pathlib.Path) -> Iterator[Completed]:
    shell = Zsh(folder)
    yield shell.completed
    shell.close()


@pytest.fixture(scope="module")
def fish(folder: pathlib.Path) -> Completed:
    def completed(text: str) -> list[str]:
        command = [program("fish"), "--no-config", "-c", "source completion.fish; complete -C $argv[1]", text]
        environment = dict(os.environ, HOME=str(folder))
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        before = text.rpartition(" ")[0]
        return sorted(f"{before} {line.partition(chr(9))[0]}" for line in done.stdout.splitlines())

    program("fish")
    return completed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_completion(shell: str, text: str, expected: list[str], request: pytest.FixtureRequest) -> None:
    completed: Completed = request.getfixturevalue(shell)
    assert completed(text) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_command_comes(shell: str, request: pytest.FixtureRequest) -> None:
    completed: Completed = request.getfixturevalue(shell)
    for command in cli.COMMANDS:
        assert f"coldsnap {command.name}" in completed(f"coldsnap {command.name[:-1]}")
