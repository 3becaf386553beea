"""The matrix's axes, the order of samples, and lists on the command line."""

from __future__ import annotations

import pytest

from bench.startup.cells import CASES, Cell, cells_of, checked, in_turns, joined
from coldsnap import errors


def test_cells() -> None:
    cells = cells_of(["serve-text"], ["auto", "coldsnap"], ["cold"], ["cold", "warm"])
    assert [(cell.load_format, cell.pages) for cell in cells] == [
        ("auto", "cold"),
        ("coldsnap", "cold"),
        ("auto", "warm"),
        ("coldsnap", "warm"),
    ]
    assert (cells[0].topology, cells[0].towers) == ("serve", "text")
    assert cells[1].label == "serve-text coldsnap, caches cold, pages cold"


def test_every_other_round_goes_backwards() -> None:
    one, two, three = (Cell("inproc-full", name, "cold", "warm") for name in "abc")
    assert list(in_turns([one, two, three], 3)) == [
        *((0, each) for each in (one, two, three)),
        *((1, each) for each in (three, two, one)),
        *((2, each) for each in (one, two, three)),
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--cases", "a", "b", "--minutes=1"], ["--cases=a,b", "--minutes=1"]),
        (["--cases=a", "b"], ["--cases=a,b"]),
        (["--cases=a,b"], ["--cases=a,b"]),
        (["--formats", "a,b", "c", "--pages", "warm"], ["--formats=a,b,c", "--pages=warm"]),
        (["--output", "x", "--resume"], ["--output", "x", "--resume"]),
    ],
)
def test_lists_of_words(given: list[str], found: list[str]) -> None:
    assert joined(["program", *given]) == ["program", *found]


def test_refusals() -> None:
    assert checked("--cases", ["serve-full", " inproc-full "], CASES) == ["serve-full", "inproc-full"]
    assert checked("--formats", ["anything"], None) == ["anything"]
    with pytest.raises(errors.RequestInvalidError, match="'served' is not known; known: inproc-full, "):
        checked("--cases", ["served"], CASES)
