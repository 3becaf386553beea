"""The document: every start kept, what counts, what may be gone on with; and what is made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.startup import page, table
from bench.startup.cells import Cell
from bench.startup.ledger import FILE, Ledger, median, middle
from bench.startup.phases import Mark, phases_of
from coldsnap import errors

AUTO = Cell("inproc-full", "auto", "cold", "warm")
OURS = Cell("inproc-full", "coldsnap", "cold", "warm")
HEAD: dict[str, Any] = {
    "format": 1,
    "commit": "c",
    "machine": {
        "cpu": "CPU",
        "architecture": "x86_64",
        "cores": 16,
        "memory_bytes": 1 << 37,
        "kernel": "6.1",
        "gpu": {"name": "GPU", "driver": "580"},
        "python": "3.12.3",
        "versions": {"vllm": "0.26.0"},
    },
    "request": {"model": "m", "model_bytes": 1 << 32, "tokens": 3, "engine": {"enforce_eager": True}},
    "variables": {},
    "not_applicable": [],
}


def start(cell: Cell, ready_s: float = 8.0, kind: str = "sample", **more: Any) -> dict[str, Any]:
    """A start whose weights took two seconds, and which did not say when it had built its graphs."""
    marks = {
        "spawned": Mark(0.0, "spawn"),
        "started": Mark(0.5, "child"),
        "imported": Mark(3.0, "child"),
        "load_begun": Mark(4.0, "log"),
        "weights_begun": Mark(4.5, "log's seconds"),
        "weights_done": Mark(6.5, "log"),
        "ready": Mark(ready_s, "child"),
        "first_token": Mark(ready_s + 0.25, "child"),
    }
    prepares = kind == "prepare"
    return {
        "kind": kind,
        "case": cell.case,
        "load_format": cell.load_format,
        "caches": None if prepares else cell.caches,
        "pages": None if prepares else cell.pages,
        "marks": {name: {"s": mark.s, "source": mark.source} for name, mark in marks.items()},
        "phases": phases_of(marks),
        "ttft_s": [0.25, 0.125, 0.0625],
        "ids": [[1, 2, 3]],
        "lines": [],
        "out": None,
        **more,
    }


def ledger(folder: Path | None = None, **head: Any) -> Ledger:
    return Ledger(HEAD | head, [AUTO, OURS], folder)


def test_every_start_is_written_at_once(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.add(start(OURS, kind="prepare"))
    book.add(start(AUTO, out="it took more than 2 s: exit code 1"))
    book.add(start(OURS))
    found = json.loads((tmp_path / FILE).read_text())
    assert [each["number"] for each in found["starts"]] == [1, 2, 3]
    assert (found["complete"], found["ended"]) == (False, "it is not over yet")
    auto, ours = found["cells"]
    assert (auto["ready_s"], auto["out"]) == ([], "it took more than 2 s: exit code 1")
    assert (ours["ready_s"], ours["first_token_s"], ours["out"]) == ([8.0], [8.25], None)
    assert (ours["first_ttft_s"], ours["later_ttft_s"]) == ([0.25], [0.125, 0.0625])
    assert (ours["phases_s"]["weights"], ours["phases_s"]["graphs"]) == ([2.0], [None])

    book.ended = None
    assert book.write() == tmp_path / FILE
    assert json.loads((tmp_path / FILE).read_text())["complete"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert ledger().write() is None


def test_what_falls_out_has_its_reason_in_every_cell() -> None:
    warm = Cell("inproc-full", "coldsnap", "warm", "warm")
    book = Ledger(HEAD, [AUTO, OURS, warm], None)
    book.add(start(AUTO))
    book.add(start(OURS))
    book.add(start(warm, out="it did not restore"))
    assert [cell["out"] for cell in book.document()["cells"]] == [None, "it did not restore", "it did not restore"]
    book.add(start(warm))  # of a run that went on
    assert [cell["out"] for cell in book.document()["cells"]] == [None, None, None]


def test_going_on(tmp_path: Path) -> None:
    assert ledger(tmp_path).take_up() == 0
    book = ledger(tmp_path)
    book.add(start(AUTO))
    later = ledger(tmp_path)
    assert later.take_up() == 1
    assert later.starts == book.starts
    later.add(start(AUTO))
    assert [each["number"] for each in later.starts] == [1, 2]

    request = HEAD["request"] | {"engine": {}}
    with pytest.raises(errors.RequestInvalidError, match=r"request\.engine\.enforce_eager was True and is None"):
        ledger(tmp_path, request=request).take_up()
    with pytest.raises(errors.RequestInvalidError, match=r"variables\.VLLM_X was None and is '1'"):
        ledger(tmp_path, variables={"VLLM_X": "1"}).take_up()


def test_other_tokens() -> None:
    book = ledger()
    book.add(start(OURS, ids=[[9, 2, 3]]))
    book.add(start(AUTO))
    book.add(start(AUTO, ids=[], out="it ended before it answered"))
    book.add(start(Cell("serve-full", "coldsnap", "cold", "warm"), ids=[[5]]))
    # The one that loaded normally is right, though it came later; a case without one has its first.
    assert [each["number"] for each in book.others()] == [1]


def test_the_middle_start() -> None:
    starts = [start(AUTO, ready_s) for ready_s in (9.0, 7.0, 8.0, 10.0)]
    found = middle(starts)
    assert found is not None
    assert found["marks"]["ready"]["s"] == 8.0
    assert middle([]) is None
    assert median([3.0, None, 1.0]) == 2.0
    assert median([None]) is None


def filled() -> dict[str, Any]:
    book = ledger(not_applicable=[{"case": "inproc-text", "reason": "m has no towers"}])
    for ready_s in (9.0, 8.0, 8.5):
        book.add(start(AUTO, ready_s))
    book.add(start(OURS, kind="prepare", out="it neither captured nor restored: <why>"))
    return book.document()


def test_the_table() -> None:
    lines = list(table.lines_of(filled()))
    assert lines[1].split() == [
        *("inproc-full", "auto", "cold", "warm", "3"),
        *("2.50", "-", "-", "0.50", "2.00", "-", "-", "-", "-"),
        *("8.50", "8.75", "0.25", "0.09"),
    ]
    assert lines[2].split()[4] == "0"
    assert lines[-3] == ("OUT: inproc-full coldsnap, caches cold, pages warm: it neither captured nor restored: <why>")
    assert lines[-2] == "not applicable: inproc-text: m has no towers"
    assert lines[-1] == "NOT COMPLETE: it is not over yet; --resume goes on"


def test_what_the_page_is_made_of() -> None:
    assert page.waterfalls_of(filled()) == [
        {
            "label": "inproc-full auto, caches cold, pages warm",
            "phases": [
                ("imports", 0.0, 3.0, "child + spawn"),
                ("build", 4.0, 4.5, "log + log's seconds"),
                ("weights", 4.5, 6.5, "log + log's seconds"),
            ],
            "marks": [("ready", 8.5), ("first token", 8.75)],
        }
    ]
    auto, ours = page.rows_of(filled())
    assert auto == [
        *("inproc-full", "auto", "cold", "warm", "8.500"),
        *("9.00, 8.00, 8.50", "8.750", "0.250", "0.094", ""),
    ]
    assert ours[4:] == ["-", "", "-", "-", "-", "it neither captured nor restored: <why>"]


def test_the_page(tmp_path: Path) -> None:
    files = page.write(filled(), tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in files] == ["report.html", "plots/startup-inproc-full.png"]
    text = files[0].read_text()
    assert "Starts of vLLM 0.26.0" in text
    assert "it neither captured nor restored: &lt;why&gt;" in text
    assert "it is not over yet" in text
    assert page.write(ledger().document(), tmp_path) == []
