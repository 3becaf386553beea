"""Completion: bash runs what is printed for it; all three shells get every command and flag."""

import json
import shutil
import subprocess

import pytest

from coldsnap import cli, completion_command


def text_for(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["coldsnap", "completion", shell]) == 0
    return capsys.readouterr().out


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    command = f'{script}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _coldsnap; printf \'%s\\n\' "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", command, "bash", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    script = text_for("bash", capsys)
    assert completed(script, "coldsnap", "ver") == ["verify"]
    assert completed(script, "coldsnap", "--v") == ["--version"]
    assert completed(script, "coldsnap", "verify", "--a") == ["--admit"]
    assert completed(script, "coldsnap", "store", "un") == ["unquarantine", "unpack"]
    assert completed(script, "coldsnap", "store", "gc", "--max") == ["--max-age-days", "--max-bytes"]
    assert completed(script, "coldsnap", "completion", "z") == ["zsh"]
    assert "--chunk_bytes" in completed(script, "coldsnap", "calibrate", "--")
    assert completed(script, "coldsnap", "verify", "./some/file") == []  # then the shell completes file names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_flag_is_in_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = text_for(shell, capsys).replace("'", " ").replace(":", " ").split()
    for command in cli.COMMANDS:
        assert command.name in words or f"{command.name})" in words
        flags = completion_command.flags_of(command)
        assert flags[0].startswith("--")
        for word in (*command.words, *(flag[2:] if shell == "fish" else flag for flag in flags)):
            assert word in words, (command.name, word)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=text_for(shell, capsys), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coldsnap", "completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
    assert cli.main(["coldsnap", "completion", "fish", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == "fish"
