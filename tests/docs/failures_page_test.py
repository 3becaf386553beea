"""docs/failures.md says what is true: its codes, sentences and tests are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from coldsnap import errors
from tests.docs import pages

TOP = pages.work_tree()
HEAD = "| failure | what happens | code | message | shown by |"
_MARK = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of the page's tables; what stands in code marks in its last three cells."""

    failure: str
    codes: list[str]
    sentences: list[str]
    shown_by: list[str]


def rows() -> list[Row]:
    found = []
    for line in (TOP / "docs" / "failures.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line == HEAD or line.startswith("| ---"):
            continue
        failure, _, codes, sentences, shown_by = line.strip("| ").split(" | ")
        found.append(Row(failure, *(_MARK.findall(cell) for cell in (codes, sentences, shown_by))))
    return found


def source() -> str:
    """The text of the core and of the package, with the string literals that follow each other joined."""
    files = sorted(
        path for folder in ("cc", "py") for path in (TOP / folder).rglob("*") if path.suffix in (".cc", ".py")
    )
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if not re.search(r"_test\.\w+$", path.name))
    return re.sub(r'"\s*\n\s*f?"', "", text)


SOURCE = source()
ROWS = rows()


def failure(row: Row) -> str:
    return row.failure


def defines(test: str) -> re.Pattern[str]:
    """How a test stands in its file: ``test_name`` in Python, ``Suite.Name`` in C++."""
    suite, dot, name = test.partition(".")
    return re.compile(rf"^TEST(_[FP])?\({suite}, {name}\)" if dot else rf"^def {test}\(", re.MULTILINE)


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert len({row.failure for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=failure)
def test_codes_are_known(row: Row) -> None:
    assert set(row.codes) <= {kind.code for kind in errors.ERROR_CLASSES}


@pytest.mark.parametrize("row", ROWS, ids=failure)
def test_sentences_are_in_the_code(row: Row) -> None:
    for sentence in row.sentences:
        for part in re.split(r"…|; ", sentence):  # a remedy stands apart
            assert part.strip(" :") in SOURCE, f"no code says {part!r}"
    assert row.sentences or not row.codes, "it fails, and nothing is said"


@pytest.mark.parametrize("row", ROWS, ids=failure)
def test_tests_exist(row: Row) -> None:
    assert row.shown_by, "nothing shows it"
    file = Path()
    for mark in row.shown_by:
        if "/" in mark:
            file = TOP / mark
            continue
        assert defines(mark).search(file.read_text(encoding="utf-8")), f"{file.relative_to(TOP)} has no {mark}"
    assert "/" not in row.shown_by[-1], f"{row.shown_by[-1]}: which test?"
