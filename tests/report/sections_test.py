"""What a results.json shows in a report, and what is refused as none."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from coldsnap import errors
from coldsnap._bench import html
from coldsnap._bench.html import page, sections
from coldsnap._bench.html.canvas import Plot
from tests.report.results import case, document, sweep, trace

KEPT = Path(os.environ["RUNFILES_ROOT"]) / "bench" / "results"


def plots(found: list[page.Section]) -> dict[str, Plot]:
    return {part.name: part for section in found for part in section.parts if isinstance(part, Plot)}


def words(plot: Plot) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)


def section(found: list[page.Section], title: str) -> page.Section:
    (only,) = [each for each in found if each.title == title]
    return only


def test_states_and_operations_have_plots_of_their_own() -> None:
    warm = case(route="buffered", cache="warm", ceiling="pinned_h2d.t1", ratio=0.04)
    half = case(route="auto", cache="half", ceiling=None, ratio=None)
    capture = case(operation="capture", cache="new")
    small = case(cache="warm", payload_bytes=1 << 29, extents=50000, samples_s=[0.5])
    drawn = plots(sections.of_results(document(case(), warm, small, half, capture), None))
    assert list(drawn) == ["hydrate-cold", "hydrate-half", "hydrate-warm", "hydrate-warm-50000-extents", "capture-new"]
    assert drawn["hydrate-warm-50000-extents"].title == "Restores, warm, 50000 extents"
    assert "Ceiling: raw direct read, 2.50 GB/s." in drawn["hydrate-cold"].note
    assert {"direct, crc32 on device", "4 MiB x 8, 4 threads", "2.00 GB/s", "80 %"} <= set(words(drawn["hydrate-cold"]))
    assert not [word for word in words(drawn["hydrate-half"]) if "%" in word]


def test_ceilings_are_named_in_the_rows_where_they_differ() -> None:
    cases = [case(cache="warm"), case(cache="warm", route="buffered", ceiling="pinned_h2d.t1", ratio=0.036)]
    (plot,) = plots(sections.of_results(document(*cases), None)).values()
    assert {"80 % of raw direct read, 2.50", "4 % of pinned h2d, 55.0"} <= set(words(plot))
    assert "Ceiling" not in plot.note


def test_a_sweep_is_a_heat_map_of_the_fastest_threads() -> None:
    found = sections.of_results(document(*sweep()), None)
    (name, heat) = list(plots(found).items())[-1]
    assert name == "sweep-hydrate-direct-cold-crc32-device"
    columns = [word for word in words(heat) if word in ("1", "2", "8")]
    assert columns == ["1", "2", "8"]
    assert [word for word in words(heat) if word.endswith(" thr")] == ["8 thr"] * 9
    assert "The largest: 6.40 at depth 8, chunk 4 MiB (8 thr)" in heat.text
    # 18 cases of one kind are one bar, the fastest, and the note says so.
    bars = plots(found)["hydrate-cold"]
    assert "The fastest setting of each kind, of 18 cases." in bars.note
    assert {"6.40 GB/s", "4 MiB x 8, 8 threads"} <= set(words(bars))


def test_a_few_settings_are_no_sweep() -> None:
    few = [case(), case(chunk_bytes=1 << 20, queue_depth=4)]
    assert list(plots(sections.of_results(document(*few), None))) == ["hydrate-cold"]


def test_tables_have_every_sample() -> None:
    results = document(case(), case(route="buffered"))
    found = sections.of_results(results, None)
    (cases,) = section(found, "All cases").parts
    assert isinstance(cases, page.Table)
    for row, each in zip(cases.rows, results["cases"], strict=True):
        assert row[-1].split() == [f"{sample * 1e3:.3f}" for sample in each["samples_s"]]
    rates, times = section(found, "Ceilings").parts
    assert isinstance(rates, page.Table)
    assert isinstance(times, page.Table)
    assert [row[-1] for row in rates.rows] == ["2.400 2.600"] * 2
    assert list(times.rows) == [["ring_ready.4194304x8", "25.000", "20.000", "30.000", "20.000 30.000"]]


def test_a_comparison_has_its_table() -> None:
    row = {"case": "direct cold", "verdict": "slower", "ratio": 0.9, "low": 0.85, "high": None, "why": "it is"}
    found = sections.of_results(document(case(), comparison=[row]), None)
    table = section(found, "Against an earlier run").parts[-1]
    assert isinstance(table, page.Table)
    assert list(table.rows) == [["direct cold", "slower", "0.900", "0.850", "-", "it is"]]


def test_trials_of_a_search_are_cells_and_said_to_be_trials() -> None:
    trials = [each | {"payload_bytes": 1 << 20, "extents": 4} for each in sweep()]
    drawn = plots(sections.of_results(document(case(), trials=trials), None))
    assert list(drawn) == ["hydrate-cold", "sweep-hydrate-direct-cold-crc32-device"]
    assert drawn["sweep-hydrate-direct-cold-crc32-device"].note == (
        "19 cases. 18 of them are trials of a search, with few samples, 18 of them over a part of the file."
    )
    assert "6.40 GB/s" not in words(drawn["hydrate-cold"])  # a trial proves nothing


def test_what_is_missing_comes_first() -> None:
    results = document(case(), complete=False, missing=["direct cold"], left_out=["2 settings of buffered"])
    first, *_ = sections.of_results(results, None)
    assert first.title == "What is missing"
    said = [part.words for part in first.parts if isinstance(part, page.Text)]
    assert said == [
        "The run was interrupted. Too few samples: direct cold.",
        "There was no time for: 2 settings of buffered.",
    ]
    assert sections.of_results(document(case(), complete=True, left_out=[]), None)[0].title == "The machine"


def test_a_recommendation_has_its_reason() -> None:
    drive = {"chunk_bytes": 1 << 20, "queue_depth": 4, "threads": 2}
    best = case(route="auto", cache="half", direct=drive) | {"why": "1.20 times as fast as buffered"}
    found = sections.of_results(document(case(), recommendation=[best]), None)
    (table,) = section(found, "What is best here").parts
    assert isinstance(table, page.Table)
    assert list(table.rows) == [
        [
            "restore, half",
            "auto, crc32 on device",
            "4 MiB x 8, 4 threads; drive 1 MiB x 4, 2",
            "2.00",
            "1.20 times as fast as buffered",
        ]
    ]


def test_a_trace_has_its_timeline_in_the_document_or_beside_it(tmp_path: Path) -> None:
    with_it = html.write(document(case(), trace=trace()), tmp_path / "a")
    beside = html.write(document(case()), tmp_path / "b", trace())
    assert [path.name for path in with_it] == [path.name for path in beside]
    assert [path.name for path in beside][2] == "timeline-1-buffered.png"
    assert len(html.write(document(case()), tmp_path / "c")) == 2


@pytest.mark.parametrize("name", ["nvidia-h200", "nvidia-h200-cold", "nvidia-h200-half", "nvidia-h200-peers"])
def test_kept_results_are_drawn(name: str, tmp_path: Path) -> None:
    results = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    written = html.write(results, tmp_path)
    assert written[0].name == "report.html"
    states = {each["cache"] for each in results["cases"]}
    assert len(written) == 1 + len(states)
    text = written[0].read_text(encoding="utf-8")
    assert text.count("<svg ") == len(states)


def broken(path: str, value: Any) -> dict[str, Any]:
    """The document with one of its values replaced."""
    results = copy.deepcopy(document(case()))
    where: Any = results
    *folders, last = path.split(".")
    for part in folders:
        where = where[int(part) if part.isdigit() else part]
    where[last] = value
    return results


@pytest.mark.parametrize(
    "results",
    [
        {},
        {"format": 1, "machine": [], "cases": []},
        broken("machine", None),
        broken("cases", 7),
        broken("cases.0.samples_s", ["x"]),
        broken("cases.0.samples_s", [0]),
        broken("cases.0.samples_s", [1e-320]),
        broken("cases.0.samples_s", []),
        broken("cases.0.ceiling", "none.t1"),
        broken("cases.0.ratio", None),
        broken("cases.0.bytes_per_second", float("inf")),
        broken("cases.0.bytes_per_second", float("nan")),
        broken("cases.0.chunk_bytes", "x"),
        broken("cases.0.place", "moon"),
        broken("cases.0.cache", "lukewarm"),
        broken("ceilings.0.median", "x"),
        broken("ceilings.0.samples", []),
        broken("payload_bytes", {}),
    ],
)
def test_what_is_no_results_json_is_refused_and_nothing_is_written(results: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"draw a report: the document is no results\.json"):
        html.write(results, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_from_a_document_are_no_paths(tmp_path: Path) -> None:
    cases = [each | {"operation": "../../up", "digest": "a/b"} for each in sweep()]
    written = html.write(document(*cases), tmp_path / "report")
    assert [path.name for path in written] == ["report.html", "-up-cold.png", "sweep-up-direct-cold-a-b-device.png"]
    assert {path.parent for path in written[1:]} == {tmp_path / "report" / "plots"}
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
