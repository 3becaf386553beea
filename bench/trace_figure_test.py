"""The figure of docs/restore.md: what is drawn of a trace, and that the page's figure is drawn of the one that is kept."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import trace_figure
from coldsnap import errors

TOP = Path(os.environ["RUNFILES_ROOT"])
KEPT = TOP / "bench" / "results" / "nvidia-h200-trace.json"
SVG = "{http://www.w3.org/2000/svg}"


def trace(*spans: tuple[str, str, float, float]) -> dict[str, Any]:
    """A trace of spans: lane, name, begin and end in microseconds."""
    lanes = list(dict.fromkeys(lane for lane, *_ in spans))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 1, "args": {"name": "coldsnap"}}
    ]
    for tid, lane in enumerate(lanes, 1):
        events.append({"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"name": lane}})
    for lane, name, begin, end in spans:
        tid = lanes.index(lane) + 1
        events.append({"ph": "X", "name": name, "pid": 7, "tid": tid, "ts": begin, "dur": end - begin, "args": {}})
    return {"displayTimeUnit": "ms", "otherData": {"dropped_spans": "0"}, "traceEvents": events}


def restore(begin: float, *threads: tuple[str, str, float, float]) -> list[tuple[str, str, float, float]]:
    """A restore of a second by its caller and threads, whose times count from its begin."""
    own = [("caller", "open", 0, 100), ("caller", "move", 100, 999_900), ("caller", "publish", 999_900, 1_000_000)]
    return [(lane, name, begin + start, begin + end) for lane, name, start, end in (*own, *threads)]


def both_routes() -> dict[str, Any]:
    direct = restore(
        5000,
        *((f"read {number}", "read", 910_000 + number, 990_000) for number in range(9)),
        ("send 0", "wait for a read", 200, 990_000),
        ("send 0", "send", 990_000, 990_030),
    )
    buffered = restore(
        2_000_000,
        ("read and send 0", "read", 1_000, 2_000),
        ("read and send 0", "digest", 2_000, 2_001),
        ("read and send 0", "let the device hash", 2_001, 2_040),
        ("read and send 0", "read", 500_000, 500_900),
        ("read and send 0", "a stage of tomorrow", 500, 990_000),
    )
    return trace(*direct, *buffered)


def bars(svg: str) -> dict[str, int]:
    """How many bars there are of each colour, by the meaning that the legend gives it."""
    root = ET.fromstring(svg)
    boxes = [each.get("fill") for each in root.iter(f"{SVG}rect") if each.get("fill")]
    texts = [each.text or "" for each in root.iter(f"{SVG}text")][-len(boxes) :]
    meaning = dict(zip(boxes, texts, strict=True))
    return {
        meaning[each.get("fill")]: each.get("d", "").count("M") for each in root.iter(f"{SVG}path") if each.get("fill")
    }


def test_bars_are_the_spans_in_the_windows() -> None:
    found = bars(trace_figure.figure(both_routes()))
    assert found["read into a slot"] == 4  # of the last panel, which has no more lanes; a path for each panel
    assert found["submit the copy and the digest kernel"] == 1
    assert found["compare whole extents, publish"] == 1
    assert "compute digests on the host" not in found  # a microsecond: left to the device
    assert "wait for an empty slot" not in found  # nobody waited for one, so the legend is without it


def test_bars_stand_where_their_times_are() -> None:
    root = ET.fromstring(trace_figure.figure(both_routes()))
    (first, *_) = [each.get("d", "") for each in root.iter(f"{SVG}path") if each.get("fill") == "#0072b2"]
    left, width = float(first[1:].split()[0]), float(first.partition("h")[2].partition("v")[0])
    plot = 480 - 134 - 12  # 3 ms of it, of which the read has the second
    assert left == pytest.approx(134 + plot / 3, abs=0.1)
    assert width == pytest.approx(plot / 3 - 0.6, abs=0.1)


def test_every_lane_of_a_panel_has_its_name() -> None:
    texts = [each.text for each in ET.fromstring(trace_figure.figure(both_routes())).iter(f"{SVG}text")]
    assert [text for text in texts if text and text.startswith("read ") and text[-1].isdigit()] == [
        *["read and send 0"] * 2,
        *(f"read {number}" for number in range(4)),
    ]
    assert texts.count("caller") == len(trace_figure.PANELS)


def test_a_title_says_how_much_is_shown() -> None:
    short = both_routes()
    for event in short["traceEvents"]:
        if event["ph"] == "X":  # a hundredth of a second in place of one
            event["ts"], event["dur"] = event["ts"] / 100, event["dur"] / 100
    shown = []
    for drawn in (both_routes(), short):
        texts = [each.text or "" for each in ET.fromstring(trace_figure.figure(drawn)).iter(f"{SVG}text")]
        shown.append([text for text in texts if text.startswith("From ")])
    (cache_first, cache_last, drive), wholes = shown
    assert cache_first == "From the page cache: the first 3 ms"
    assert cache_last == "From the page cache: the last 14 ms"
    assert drive == "From the drive: the last 90 ms"
    assert wholes == [cache_first, "From the page cache: all of it", "From the drive: all of it"]


def test_a_trimmed_trace_gives_the_same_figure() -> None:
    whole = both_routes()
    small = json.loads(trace_figure.trimmed(whole))
    assert trace_figure.figure(small) == trace_figure.figure(whole)
    assert trace_figure.trimmed(small) == trace_figure.trimmed(whole)
    assert len(small["traceEvents"]) < len(whole["traceEvents"])


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ([], "it is none (TypeError"),
        ({"traceEvents": [{"ph": "X"}]}, "it is none (KeyError"),
        (trace(), "it has 0 restores that began and 0 that were published"),
        (trace(("caller", "open", 0, 1)), "it has 1 restores that began and 0 that were published"),
        (trace(*restore(0, ("read and send 0", "read", 200, 300))), "it has no direct restore"),
    ],
)
def test_what_can_not_be_drawn_is_refused(wrong: Any, cause: str) -> None:
    with pytest.raises(errors.RequestInvalidError) as refused:
        trace_figure.figure(wrong)
    assert f"draw a trace: {cause}" in str(refused.value)
    assert "coldsnap calibrate --trace=FILE" in str(refused.value)


def test_the_program_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(both_routes()))
    names = (f"--trace={tmp_path}/trace.json", f"--output={tmp_path}/a.svg", f"--trim={tmp_path}/small.json")
    assert trace_figure.main(["trace_figure", *names]) == 0
    assert (tmp_path / "a.svg").read_text() == trace_figure.figure(json.loads((tmp_path / "small.json").read_text()))
    capsys.readouterr()
    assert trace_figure.main(["trace_figure", f"--trace={tmp_path}/a.svg", f"--output={tmp_path}/b.svg"]) == 2
    assert trace_figure.main(["trace_figure", f"--trace={tmp_path}/trace.json"]) == 2
    said = capsys.readouterr().err
    assert "read the trace a.svg" in said
    assert "--output is missing" in said
    assert not (tmp_path / "b.svg").exists()


def test_the_page_s_figure_is_drawn_from_the_trace_that_is_kept() -> None:
    text = KEPT.read_text(encoding="utf-8")
    drawn = trace_figure.figure(json.loads(text))
    command = f"./bazelw run //bench:trace_figure -- --trace={KEPT.relative_to(TOP)} --output=docs/restore.svg"
    svg = (TOP / "docs" / "restore.svg").read_text(encoding="utf-8")
    assert svg == drawn, f"docs/restore.svg is old; run: {command}"
    assert text == trace_figure.trimmed(json.loads(text)), f"{KEPT.name} has more than what is drawn"


def test_the_page_says_how_long_both_took() -> None:
    page = (TOP / "docs" / "restore.md").read_text(encoding="utf-8")
    restores = trace_figure.restores_of(json.loads(KEPT.read_text(encoding="utf-8")))
    assert [restore.route for restore in restores] == ["direct", "buffered"]
    for restore in restores:
        assert f"{(restore.end_us - restore.begin_us) / 1000:.1f} ms" in page, restore.route


def test_the_page_s_figure_needs_nothing_from_elsewhere() -> None:
    text = (TOP / "docs" / "restore.svg").read_text(encoding="utf-8")
    assert text.count("http") == 1  # the name of SVG itself
    assert "prefers-color-scheme:dark" in text
    assert "url(" not in text
