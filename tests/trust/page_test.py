"""docs/trust.md shows the list of cases as it is, and each of its rows is a test."""

from __future__ import annotations

import os
import pathlib

from tests.trust import cases, file_cases, marker_cases, mount_cases

MODULES = (file_cases, marker_cases, mount_cases)  # each adds its cases when it is imported
BEGIN, END = "<!-- cases -->\n", "<!-- /cases -->"


def shown() -> str:
    """The page's table."""
    text = pathlib.Path(os.environ["RUNFILES_ROOT"], "docs", "trust.md").read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0]


def test_the_page_shows_every_case() -> None:
    wanted = cases.table()
    assert shown() == wanted, f"docs/trust.md is old; between its marks belongs:\n{wanted}"


def test_every_module_has_cases() -> None:
    """No row twice, and none that says nothing."""
    where = {each.call.__module__ for each in cases.CASES}
    assert where == {module.__name__ for module in MODULES}
    for names in ([each.name for each in cases.CASES], [each.done for each in cases.CASES]):
        assert all(names)
        assert len(set(names)) == len(names)
