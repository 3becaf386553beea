"""What stands where in the plots: from zero, to scale, every sample; and what is said where matplotlib is missing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from coldsnap import errors
from coldsnap._bench import traces
from coldsnap._bench.html import axes, plots, spans, theme
from coldsnap._bench.html.canvas import Plot

BARS = [
    plots.Bar("one", "first", 10.0, "10 GB/s", [9.0, 10.0, 12.0], theme.DATA[0], 20.0, "50 %"),
    plots.Bar("two", "second", 5.0, "5 GB/s", [5.0], theme.DATA[0]),
]
PNG = b"\x89PNG\r\n\x1a\n"


def boxes(plot: Plot, colour: str) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of each rectangle of a colour."""
    found = []
    for path in re.findall(rf'<path d="([^"]*)"[^>]*fill: {colour}', plot.svg):
        for outline in path.split("z"):
            numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", outline)]
            if numbers:
                xs, ys = numbers[0::2], numbers[1::2]
                found.append((min(xs), max(xs), min(ys), max(ys)))
    return found


def words(plot: Plot) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot.svg)


def test_bars_begin_at_zero_and_are_to_scale() -> None:
    plot = plots.bars("b", "Bars", "", "GB/s", BARS)
    one, two = boxes(plot, theme.DATA[0])
    assert one[0] == two[0] == axes.MARGIN
    assert one[1] - one[0] == pytest.approx(2 * (two[1] - two[0]), abs=0.01)
    assert one[3] <= two[2]  # one below the other
    assert "0" in words(plot)
    assert {"one", "first", "10 GB/s", "50 %", "two", "second", "5 GB/s"} <= set(words(plot))


def test_every_sample_has_its_dot_and_the_ceiling_its_line() -> None:
    plot = plots.bars("b", "Bars", "", "GB/s", BARS)
    assert len(re.findall(r"<use [^>]*fill: var\(--ink\)", plot.svg)) == 4
    (dashed,) = re.findall(r'<path d="M (\S+) \S+\s+L \S+ \S+\s*"[^>]*stroke-dasharray', plot.svg)
    (one, _) = boxes(plot, theme.DATA[0])
    assert float(dashed) - one[0] == pytest.approx(2 * (one[1] - one[0]), abs=0.01)


def test_a_plot_is_a_picture_too_and_always_the_same() -> None:
    plot = plots.bars("b", "Bars", "", "GB/s", BARS)
    assert plot.png.startswith(PNG)
    assert plot.svg == plots.bars("b", "Bars", "", "GB/s", BARS).svg
    assert plot.text == "Bars. one: 10 GB/s, 50 %; two: 5 GB/s"
    assert plot.svg.count("<style") == plot.svg.count("<script") == plot.svg.count("http") == 0


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e12])
def test_any_size_has_an_axis(value: float) -> None:
    plot = plots.bars("b", "Bars", "", "s", [plots.Bar("x", "", value, "", [value])])
    assert "0" in words(plot)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1]), (55.3, [0, 10, 20, 30, 40, 50]), (2.6, [0, 0.5, 1, 1.5, 2, 2.5])],
)
def test_ticks_are_few_and_round(most: float, ticks: list[float]) -> None:
    assert list(axes.Axis(most, "s").ticks()) == pytest.approx(ticks)


def test_a_heat_map_keeps_the_order_of_its_ladders() -> None:
    cells = [plots.Cell("8", "4 MiB", 30.0, "30", "x"), plots.Cell("1", "1 MiB", 0.0, "0.00", "y")]
    columns, rows = plots.Ladder("depth", ["1", "8"]), plots.Ladder("chunk", ["1 MiB", "4 MiB"])
    plot = plots.heat_map("h", "Heat", "", columns, rows, cells)
    (best,) = boxes(plot, r"var\(--heat6\)")
    (least,) = boxes(plot, r"var\(--heat0\)")
    assert best[0] > least[1]
    assert best[2] > least[3]
    assert plot.text == "Heat. The largest: 30 at depth 8, chunk 4 MiB (x)"


def restore(*threads: tuple[str, str, float, float]) -> traces.Restore:
    return traces.Restore("buffered", 1000, 2000, [traces.Span(*each) for each in threads])


def test_a_timeline_has_a_lane_for_each_thread_and_a_colour_for_each_stage() -> None:
    read = ("read and send 0", "read", 1500.0, 1750.0)
    plot = spans.timeline("t", "Restore", restore(("caller", "move", 1000, 2000), read))
    (move,), (box,) = boxes(plot, traces.STAGE_OF["move"].colour)[:1], boxes(plot, traces.STAGE_OF["read"].colour)[:1]
    assert box[0] - move[0] == pytest.approx((move[1] - move[0]) / 2, abs=0.01)
    assert box[1] - box[0] == pytest.approx((move[1] - move[0]) / 4, abs=0.01)
    assert box[2] >= move[3]
    assert {"caller", "read and send 0", "read into a slot"} <= set(words(plot))
    assert "1.0 ms" in plot.note


def test_a_timeline_leaves_out_more_threads_of_a_kind_and_says_so() -> None:
    threads = [(f"read {number}", "read", 1000.0, 2000.0) for number in range(11)]
    plot = spans.timeline("t", "Restore", restore(*threads))
    assert "read 7" in words(plot)
    assert "read 8" not in words(plot)
    assert "3 more threads are left out" in plot.note


def test_what_no_screen_can_show_is_drawn_as_one() -> None:
    reads = [("read 0", "read", 1000 + number * 0.01, 1000 + number * 0.01 + 0.009) for number in range(100_000)]
    plot = spans.timeline("t", "Restore", restore(*reads))
    assert len(boxes(plot, traces.STAGE_OF["read"].colour)) == 2  # and the key's
    hair = spans.timeline("t", "Restore", restore(("read 0", "read", 1500, 1500.001)))
    (box, _) = boxes(hair, traces.STAGE_OF["read"].colour)
    assert box[1] - box[0] == pytest.approx(0.5, abs=0.01)


def test_a_waterfall_has_phases_end_to_end_and_marks() -> None:
    phases = [spans.Phase("imports", 0.0, 6.0), spans.Phase("weights", 6.0, 8.0)]
    starts = [spans.Start("auto", phases, [spans.Mark("first token", 8.5)]), spans.Start("none", phases[:1])]
    plot = spans.waterfall("w", "Starts", "", starts)
    imports, weights = boxes(plot, theme.DATA[0])[0], boxes(plot, theme.DATA[1])[0]
    assert imports[0] == axes.MARGIN
    assert weights[0] == pytest.approx(imports[1], abs=0.01)
    assert imports[1] - imports[0] == pytest.approx(3 * (weights[1] - weights[0]), abs=0.02)
    assert {"6.00", "8.50 s", "first token 8.50 s", "6.00 s"} <= set(words(plot))
    assert plot.text == ("Starts. auto: imports 6.00 s, weights 2.00 s, first token at 8.50 s; none: imports 6.00 s")


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(errors.RequestInvalidError, match=r"pip install 'coldsnap\[report\]'"):
        plots.bars("b", "Bars", "", "GB/s", BARS)


def test_matplotlib_is_imported_for_a_drawing_alone() -> None:
    code = "import sys; import coldsnap.report_command, coldsnap.calibrate; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
