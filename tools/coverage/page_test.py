"""docs/coverage.md is what the kept run and the reasons give, and what they name is in the work tree."""

import json
import os
import pathlib

import pytest

from tools.coverage import gaps, page
from tools.coverage.gaps import Count, Explained, Gap, Measured

RUNFILES = pathlib.Path(os.environ["RUNFILES_ROOT"])
MEASURED = gaps.read_measured((RUNFILES / gaps.MEASURED).read_text(encoding="utf-8"))
EXPLAINED = gaps.read_explained((RUNFILES / gaps.EXPLAINED).read_text(encoding="utf-8"))
GAP = Gap("cc/file/reader.cc", "Reader::Read", "return a || b;")
ONE = Measured({"cc/file": Count(10, 9)}, {"py/coldsnap": Count(4, 4)}, {GAP: 1})


def work_tree() -> pathlib.Path:
    top = (RUNFILES / gaps.MEASURED).resolve().parents[2]
    assert (top / "WORKSPACE").is_file(), f"{top} is no work tree: {gaps.MEASURED} is a copy; run this test locally"
    return top


def test_the_page_is_what_was_kept() -> None:
    said = f"remedy: {gaps.COMMAND}"
    assert (RUNFILES / gaps.PAGE).read_text(encoding="utf-8") == page.render(MEASURED, EXPLAINED), said
    assert (RUNFILES / gaps.MEASURED).read_text(encoding="utf-8") == gaps.measured_text(MEASURED), said


def test_every_gap_has_its_reason() -> None:
    assert gaps.problems(MEASURED, EXPLAINED) == []


def test_what_is_named_is_there() -> None:
    assert gaps.misplaced({*MEASURED.gaps, *EXPLAINED.gaps}, work_tree()) == []
    for folder in {*MEASURED.cpp, *MEASURED.python, *EXPLAINED.folders}:
        assert (work_tree() / folder).is_dir(), folder
    assert {*EXPLAINED.folders} <= {*MEASURED.cpp, *MEASURED.python}


def test_every_room_was_measured() -> None:
    for room in gaps.ROOMS:
        assert MEASURED.cpp[room].covered > 0, room
    assert {gap.file.rpartition("/")[0] for gap in MEASURED.gaps} <= {*gaps.ROOMS}


def test_a_gap_without_a_reason_and_a_reason_without_a_gap() -> None:
    other = Gap("cc/ring/ring.cc", "Ring::Take", "return;")
    (bare, idle) = gaps.problems(ONE, Explained({}, {other: "no need"}))
    assert "return a || b;: reached by no test" in bare
    assert "Ring::Take: return;: explained, and not a gap" in idle
    assert gaps.problems(ONE, Explained({}, {GAP: "no need"})) == []
    assert gaps.problems(ONE, Explained({}, {GAP: "no need", other: "by chance"}, frozenset({other}))) == []


def test_misplaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cc" / "file").mkdir(parents=True)
    (tmp_path / "cc" / "file" / "reader.cc").write_text("bool Reader::Read() {\n  return a || b;\n}\n")
    assert gaps.misplaced([GAP], tmp_path) == []
    moved = Gap(GAP.file, "Reader::Rea", "return a;")
    gone = Gap("cc/file/gone.cc", "F", "return;")
    assert gaps.misplaced([moved, gone], tmp_path) == [
        "cc/file/gone.cc: F: return;: the file is gone",
        "cc/file/reader.cc: Reader::Rea: return a;: the file has no Rea",
        "cc/file/reader.cc: Reader::Rea: return a;: the file has no such line",
    ]


def test_what_is_kept_is_read_again() -> None:
    assert gaps.read_measured(gaps.measured_text(ONE)) == ONE


@pytest.mark.parametrize(("reasons", "said"), [(["a", "b"], "explained twice"), ([" "], "the reason is empty")])
def test_bad_reasons(reasons: list[str], said: str) -> None:
    rows = [{"file": "f", "function": "g", "text": "t", "reason": reason} for reason in reasons]
    with pytest.raises(ValueError, match=said):
        gaps.read_explained(json.dumps({"folders": {}, "gaps": rows}))


def test_the_page_of_one_gap() -> None:
    text = page.render(ONE, Explained({"cc/file": "a real drive"}, {GAP: "no need"}))
    assert "| `cc/file` | 10 | 9 | 90.0 | a real drive |" in text
    assert "| all | 4 | 4 | 100.0 | |" in text
    assert "| `Reader::Read` | `return a \\|\\| b;` | 1 | no need |" in text
    assert "### cc/ring\n\nNothing.\n" in text
    assert "**not explained**" in page.render(ONE, Explained({}, {}))


def test_percents_are_rounded_down() -> None:
    assert [page.percent(Count(*pair)) for pair in ((3, 2), (1000, 999), (10000, 9999), (7, 7), (0, 0))] == [
        "66.6",
        "99.9",
        "99.9",
        "100.0",
        "-",
    ]


def test_options_that_leave_tests_out() -> None:
    assert not gaps.leaves_out(["--jobs=2", "-k", "--test_output=errors"])
    assert gaps.leaves_out(["--jobs=2", "--test_tag_filters=-slow"])
    assert gaps.leaves_out(["--test_filter=a"])
    assert gaps.leaves_out(["//cc/base/..."])
