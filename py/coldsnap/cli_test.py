"""The table of commands: each can be run, tells its flags, and has an example that begins with its name."""

import importlib
import os
import subprocess
import sys

import pytest

from coldsnap import cli


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_is_there_and_helps(command: cli.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(command.module).main)
    assert f"coldsnap {command.name}" in command.example
    assert cli.main(["coldsnap", command.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "example" in out
    assert f"coldsnap {command.name}" in out
    assert max(map(len, out.splitlines())) <= 80


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


def broken(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """Have ``coldsnap verify`` fail in a way that it does not know."""

    def fail(arguments: list[str]) -> int:
        raise failure

    monkeypatch.setattr("coldsnap.verify_command.main", fail)


def test_a_failure_of_our_own_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, KeyError("x"))
    assert cli.main(["coldsnap", "verify", "x"]) == 1
    assert capsys.readouterr().err == (
        "coldsnap: internal error: KeyError: 'x'; run coldsnap --debug to see where, and report it\n"
    )
    with pytest.raises(KeyError):
        cli.main(["coldsnap", "--debug", "verify", "x"])


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken(monkeypatch, KeyboardInterrupt())
    assert cli.main(["coldsnap", "verify", "x"]) == 130
    assert capsys.readouterr().err == "coldsnap: interrupted\n"


def test_nobody_reads_any_more() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "coldsnap.cli", "--help"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
