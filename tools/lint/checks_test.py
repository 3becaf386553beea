"""Each check finds what it is for, and leaves its neighbours alone."""

import pathlib

import pytest

from tools.lint import checks

# In pieces, or the checks would find this file.
HOME = "/ho" + "me/"
ROOT = "/ro" + "ot"
OPEN_WORK = "TO" + "DO"


@pytest.mark.parametrize("line", [f"cd {ROOT}/src", f'open("{HOME}ann/x")', f"PATH={ROOT}/bin", "see /wo" + "rk/x"])
def test_finds_paths_of_one_machine(line: str) -> None:
    assert len(checks.findings(pathlib.PurePath("a.py"), f"x = 1\n{line}\n")) == 1


@pytest.mark.parametrize("line", ["/usr/lib", "$HOME/x", "the/root/of it", "artifact/root", "https://x.org/work/"])
def test_leaves_other_paths_alone(line: str) -> None:
    assert checks.findings(pathlib.PurePath("a.py"), line + "\n") == []


def test_finds_registry_hosts() -> None:
    assert checks.findings(pathlib.PurePath("a.md"), "from https://pypi" + ".org/simple\n")[0][0] == 1


def test_finds_open_work_with_its_line() -> None:
    assert checks.findings(pathlib.PurePath("a.cc"), f"\n\n// {OPEN_WORK}: more\n")[0][0] == 3


@pytest.mark.parametrize(("lines", "count"), [(checks.MAX_LINES, 0), (checks.MAX_LINES + 1, 1)])
def test_limits_the_length_of_a_file(lines: int, count: int) -> None:
    assert len(checks.findings(pathlib.PurePath("a.py"), "x\n" * lines)) == count


def test_headers_open_with_a_comment() -> None:
    assert checks.findings(pathlib.PurePath("a.h"), "#pragma once\n")
    assert not checks.findings(pathlib.PurePath("a.h"), "// What it is.\n#pragma once\n")


def test_wants_a_newline_at_the_end() -> None:
    assert checks.findings(pathlib.PurePath("a.md"), "one\ntwo") == [
        (2, "no newline at the end of the file; remedy: add one")
    ]
    assert not checks.findings(pathlib.PurePath("tests/golden/format-1/artifact.json"), "{}")
