"""What the commands share: plain tables for pipes, a progress line that ends, and nothing that a terminal obeys."""

import argparse
import io
import json

import pytest

from coldsnap import errors, terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_in_a_pipe_is_one_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(("name", "bytes", "x"), [["a" * 200, "1", ""], ["b", "23", "y"]], right=("bytes",))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name" + " " * 196 + "  bytes  x", "a" * 200 + "      1", "b" + " " * 199 + "     23  y"]


def test_a_table_without_rows_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(("name", "bytes"), [])
    assert capsys.readouterr().out == "name  bytes\n"


def test_fields_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_fields([("a", "x " * 100), ("long name", "")])
    assert capsys.readouterr().out.splitlines() == ["a          " + "x " * 100, "long name  "]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢", "plain ü 漢"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb", "a\\nb"),
        ("\udcff", "\\udcff"),
        ("\u202e", "\\u202e"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    assert terminal.printable(text) == shown


def test_progress_ends_its_line() -> None:
    stream = Terminal()
    show = terminal.progress(stream)
    assert show is not None
    show(10**9, 3 * 10**9)
    assert stream.getvalue().startswith("\r 33 %  1.00 of 3.00 GB  ")
    assert "\n" not in stream.getvalue()
    show(3 * 10**9, 3 * 10**9)
    assert stream.getvalue().endswith("\n")
    assert all(len(line.rstrip("\n")) <= 80 for line in stream.getvalue().split("\r"))


def test_there_is_no_progress_in_a_pipe() -> None:
    assert terminal.progress(io.StringIO()) is None


@pytest.mark.parametrize(
    ("failure", "code", "exit_code"),
    [(errors.IoError("read x", remedy="try y"), "io", 5), (KeyboardInterrupt(), "cancelled", 130)],
)
def test_a_failure_is_one_sentence_and_a_receipt(
    failure: BaseException, code: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser(prog="coldsnap test")
    parser.add_argument("--json", action="store_true")

    def work(flags: argparse.Namespace) -> int:
        raise failure

    assert terminal.run(parser, ["--json"], "test", work) == exit_code
    out = capsys.readouterr()
    assert out.err == f"coldsnap test: {str(failure) or 'interrupted'}\n"
    receipt = json.loads(out.out)
    assert (receipt["operation"], receipt["error"]["code"], out.out.count("\n")) == ("test", code, 1)
    assert terminal.run(parser, [], "test", work) == exit_code
    assert capsys.readouterr().out == ""
