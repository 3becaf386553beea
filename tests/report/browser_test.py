"""Reports in a real browser: no complaint, no request, nothing cut off, readable on a phone, light and dark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldsnap._bench import html
from coldsnap._bench.html import page, spans
from tests.report.browser import Browser, find
from tests.report.results import case, document, sweep, trace

PROGRAM = find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed (Debian's package chromium)")

KEPT = Path(os.environ["RUNFILES_ROOT"]) / "bench" / "results"
WIDE, PHONE = 1200, 360
# Of every plot: its width, its height, and the words that stand out of it or run into others.
PLOTS = """[...document.querySelectorAll('svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const bad = texts.filter(([, a], i) => a.left < box.left || a.right > box.right || a.top < box.top - 1 ||
    a.bottom > box.bottom + 1 || texts.some(([, b], j) => j > i && a.left < b.right - 1 && b.left < a.right - 1 &&
    Math.abs((a.top + a.bottom) - (b.top + b.bottom)) < a.height));
  return [box.width, box.height, bad.map(([words]) => words)];
})"""
# What a reader's eye gets of a theme: the page's ground and the colours of a plot's first words and of the axis.
COLOURS = """[getComputedStyle(document.body).backgroundColor,
  getComputedStyle(document.querySelector('svg text')).fill,
  getComputedStyle(document.querySelector('svg [style*="--grid"]')).stroke]"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as browser:
        yield browser


def kept(folder: Path) -> Path:
    """The report of a kept run of an H200, with the trace that is kept."""
    results = json.loads((KEPT / "nvidia-h200.json").read_text(encoding="utf-8"))
    return html.write(results, folder, json.loads((KEPT / "nvidia-h200-trace.json").read_text(encoding="utf-8")))[0]


def of_everything(folder: Path) -> Path:
    """A report with all that a calibration can have: a sweep, captures, a comparison, a trace."""
    row = {"case": "direct cold", "verdict": "same", "ratio": 1.0, "low": 0.98, "high": 1.02}
    small = {"payload_bytes": 1 << 29, "extents": 50000}
    capture = case(operation="capture", cache="new", threads=128, chunk_bytes=128 << 20, digest="crc32+sha256")
    drive = {"chunk_bytes": 512 << 10, "queue_depth": 64, "threads": 16}
    half = case(route="auto", cache="half", ceiling=None, ratio=None, digest="crc32+sha256", direct=drive)
    pinned = case(route="buffered", cache="warm", digest="crc32+sha256", ceiling="pinned_h2d.t1", chunk_bytes=512 << 10)
    warm = [pinned, case(cache="warm", bytes_per_second=123_000_000), case(cache="warm", **small)]
    more = {"recommendation": [case(why="the only one")], "trials": sweep(), "complete": False, "missing": ["a", "b"]}
    cases = [*sweep(), capture, half, *warm, case(cache="mixed")]
    return html.write(document(*cases, trace=trace(), comparison=[row], **more), folder)[0]


def of_starts(folder: Path) -> Path:
    """A page with a waterfall."""
    names = ("imports", "config", "model", "weights", "post-processing", "profiling", "graphs", "ready")
    phases = [spans.Phase(name, float(number), number + 1.0) for number, name in enumerate(names)]
    marks = [spans.Mark("first token", 8.1), spans.Mark("first token of the second", 8.2)]
    starts = [spans.Start("multiproc-full, fastsafetensors, cold", phases, marks), spans.Start("b", phases[:1])]
    return page.write(folder, "Starts", [page.Section("s", [spans.waterfall("w", "t", "n", starts)])], {})[0]


REPORTS = {"kept": (kept, 5), "everything": (of_everything, 8), "starts": (of_starts, 1)}


@pytest.fixture(scope="module", params=REPORTS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    make, plots = REPORTS[request.param]
    return make(tmp_path_factory.mktemp(request.param)), plots


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_everything_is_seen_and_nothing_is_asked_for(browser: Browser, report: tuple[Path, int], width: int) -> None:
    path, count = report
    browser.requested.clear()
    browser.complaints.clear()
    browser.open(path, width)
    plots = browser.value(PLOTS)
    assert len(plots) == count
    for wide, high, out in plots:
        assert wide >= 300
        assert high >= 60
        assert out == []
    assert browser.value("document.documentElement.scrollWidth") == width  # no scrolling sideways
    assert browser.value("document.querySelectorAll('a[href^=\"data:\"]').length") >= count // 5
    assert browser.requested == [path.as_uri()]
    assert browser.complaints == []


def test_tables_scroll_in_a_box_of_their_own(browser: Browser, report: tuple[Path, int]) -> None:
    browser.open(report[0], PHONE)
    boxes = browser.value("[...document.querySelectorAll('.wide')].map(box => [box.clientWidth, box.scrollWidth])")
    tables = browser.value("document.querySelectorAll('table').length")
    assert len(boxes) == tables
    for shown, all_of_it in boxes:
        assert shown < PHONE
        assert all_of_it >= shown


def test_letters_are_large_enough_on_a_phone(browser: Browser, report: tuple[Path, int]) -> None:
    browser.open(report[0], PHONE)
    script = """Math.min(...[...document.querySelectorAll('svg text')].map(text =>
      parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width / 420))"""
    assert browser.value(script) >= 8.5


def test_light_and_dark_follow_the_system_or_the_buttons(browser: Browser, report: tuple[Path, int]) -> None:
    path, _ = report
    seen, pictures = {}, {}
    for scheme in ("light", "dark"):
        browser.open(path, WIDE, scheme=scheme)
        seen[scheme], pictures[scheme] = browser.value(COLOURS), browser.picture()
        for chosen in ("light", "dark", "auto"):
            browser.value(f"document.querySelector('label[for={chosen}]').click()")
            seen[scheme, chosen] = browser.value(COLOURS)
    assert all(light != dark for light, dark in zip(seen["light"], seen["dark"], strict=True))
    assert pictures["light"] != pictures["dark"]
    for scheme in ("light", "dark"):
        assert seen[scheme, "auto"] == seen[scheme]
        assert (seen[scheme, "light"], seen[scheme, "dark"]) == (seen["light"], seen["dark"])


def test_a_download_is_the_document(browser: Browser, tmp_path: Path) -> None:
    results = document(case())
    browser.open(html.write(results, tmp_path)[0], WIDE)
    script = "atob(document.querySelector('a[download=\"results.json\"]').href.split(',')[1])"
    assert json.loads(browser.value(script)) == results


def test_what_is_asked_for_and_complained_about_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    """The other tests are worth something only if a page that breaks the rules is caught."""
    browser.requested.clear()
    browser.complaints.clear()
    text = "<img src='http://coldsnap.invalid/x.png'><script>console.error('said'); missing()</script>"
    path = tmp_path / "bad.html"
    path.write_text(text)
    browser.open(path, WIDE)
    assert "http://coldsnap.invalid/x.png" in browser.requested
    told = " ".join(browser.complaints)
    assert "said" in told
    assert "missing" in told
