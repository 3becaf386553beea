"""The table of commands: each can be run, tells its flags, and has an example that begins with its name."""

import importlib

import pytest

from coldsnap import cli


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_is_there_and_helps(command: cli.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(command.module).main)
    assert command.example.split()[:2] == ["coldsnap", command.name]
    assert cli.main(["coldsnap", command.name, "--help"]) == 0
    assert capsys.readouterr().out


def test_the_help_names_all_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coldsnap", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for command in cli.COMMANDS:
        assert any(line.split()[:1] == [command.name] for line in lines)
        assert f"  {command.example}" in lines


@pytest.mark.parametrize("arguments", [[], ["verfiy"], ["--nothing"]])
def test_what_is_no_command_is_refused_with_the_known_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["coldsnap", *arguments]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("coldsnap: run")
    assert "known: calibrate, " in out.err
