"""Draws what the threads of a restore did, from a trace that `coldsnap calibrate --trace=FILE` wrote.

`bazel run //bench:trace_figure -- --trace=FILE --output=docs/restore.svg` makes the figure of docs/restore.md. With --trim
it also writes a trace that has only what is drawn, and gives the same figure: that one is small enough to keep.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from xml.sax import saxutils

from absl import flags

from coldsnap import errors
from coldsnap._bench import flagset
from coldsnap._bench.traces import STAGE_OF, STAGES, Restore, Span, lanes_of, no_trace, restores_of, role_of, span_of


class Panel(NamedTuple):
    """A window of one restore: so many lanes of each role, and so many microseconds at its start or end."""

    route: str
    title: str
    at_end: bool
    width_us: float
    lanes: dict[str, int]


PANELS = (
    Panel("buffered", "From the page cache", False, 3_000, {"caller": 1, "read and send": 5}),
    Panel("buffered", "From the page cache", True, 14_000, {"caller": 1, "read and send": 3}),
    Panel("direct", "From the drive", True, 90_000, {"caller": 1, "read": 4, "send": 4}),
)

# Pixels. A phone shows 480 of them on about 340, so letters of 14 are still about 10 high.
_WIDTH, _LEFT, _RIGHT = 480, 134, 12
_LANE, _BAR, _FONT = 23, 16, 14
_LEAST_US = 5  # shorter spans are left out, such as those of digests that are left to the device
_LEAST_PIXELS = 1.5  # so that a copy's submission of 30 us is seen beside a read of 35 ms

_STYLE = f"""text{{font:{_FONT}px system-ui,sans-serif;fill:#1f2328}}.t{{font-weight:600}}.a{{fill:#59636e}}
.b{{fill:#fff}}.g{{stroke:#d1d9e0;fill:none}}
@media (prefers-color-scheme:dark){{text{{fill:#f0f6fc}}.a{{fill:#a4acb5}}.b{{fill:#151b23}}.g{{stroke:#3d444d}}}}"""


def main(argv: Sequence[str]) -> int:
    """Draw the figure.

    Args:
        argv: The program's name, then the flags.
    Returns:
        0; 2 for a wrong flag, a file that can't be read or is no such trace, or one that can't be written.
    """
    values = flags.FlagValues()
    flags.DEFINE_string("trace", None, "the trace, in Chrome's format", flag_values=values)
    flags.DEFINE_string("output", None, "the SVG to write", flag_values=values)
    flags.DEFINE_string("trim", None, "also write the part of the trace that is drawn to this file", flag_values=values)
    usage = f"{__doc__}\nexample:\n  bazel run //bench:trace_figure -- --trace=trace.json --output=docs/restore.svg"
    return flagset.run(values, argv, usage, lambda: _draw_file(values))


def _draw_file(values: flags.FlagValues) -> int:
    for name in ("trace", "output"):
        if values[name].value is None:
            raise errors.RequestInvalidError(f"draw a trace: --{name} is missing", remedy="see --help")
    path = flagset.user_path("trace", values["trace"].value)
    try:
        trace = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.RequestInvalidError(f"read the trace {path.name}: {error}", remedy="see --help") from error
    written = {"output": figure(trace)}
    if values["trim"].value is not None:
        written["trim"] = trimmed(trace)
    for name, text in written.items():
        output = flagset.user_path(name, values[name].value)
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise errors.RequestInvalidError(f"write {output.name}: {error.strerror}", remedy="see --help") from error
        print(f"{output.name}: {len(text)} bytes")
    return 0


def figure(trace: Any) -> str:
    """Draw the windows in `PANELS` as an SVG, the same bytes for the same spans.

    Raises:
        RequestInvalidError: The trace lacks a restore by one of the routes, or is none at all.
    """
    restores = restores_of(trace)
    body, y, seen = [], 24.0, set[str]()
    for panel in PANELS:
        restore = _restore_for(panel, restores)
        spans = _drawn(panel, restore)
        seen |= {STAGE_OF[span.name].key for span in spans}
        body += _panel(panel, restore, spans, y)
        y += _LANE * (len(_lanes(panel, restore)) + 1) + 40
    legend = [stage for stage in STAGES if stage.key in seen]
    for number, stage in enumerate(legend):
        at = y + 22 * number
        body.append(f'<rect x="12" y="{_n(at - 11)}" width="14" height="14" rx="2" fill="{stage.colour}"/>')
        body.append(f'<text x="34" y="{_n(at + 1)}">{saxutils.escape(stage.meaning)}</text>')
    height = _n(y + 22 * len(legend) - 6)
    title = "What the threads of two restores did, by time"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        f' role="img" aria-label="{title}">'
    )
    card = f'<rect class="b" width="{_WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{_STYLE}</style>", card, *body, "</svg>", ""])


def trimmed(trace: Any) -> str:
    """The events of a trace that `figure` looks at, one a line, so that it draws the same from them."""
    restores = restores_of(trace)
    wanted = {span for panel in PANELS for span in _drawn(panel, _restore_for(panel, restores))}
    wanted |= {span for restore in restores for span in restore.spans if span.lane == "caller"}
    lanes, named = lanes_of(trace), {span.lane for span in wanted}
    kept = []
    for event in trace["traceEvents"]:
        lane = lanes.get(event["tid"], "")
        if lane in named if event["ph"] == "M" else event["ph"] == "X" and span_of(event, lane) in wanted:
            kept.append(event)
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in kept)
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def _restore_for(panel: Panel, restores: Iterable[Restore]) -> Restore:
    for restore in restores:
        if restore.route == panel.route:
            return restore
    raise no_trace(f"it has no {panel.route} restore")


def _lanes(panel: Panel, restore: Restore) -> list[str]:
    """The lanes of a panel, from top to bottom: the first ones of each role."""
    chosen = []
    for role, count in panel.lanes.items():
        chosen += [lane for lane in dict.fromkeys(span.lane for span in restore.spans) if role_of(lane) == role][:count]
    return chosen


def _window(panel: Panel, restore: Restore) -> tuple[float, float]:
    if panel.at_end:
        return max(restore.begin_us, restore.end_us - panel.width_us), restore.end_us
    return restore.begin_us, min(restore.end_us, restore.begin_us + panel.width_us)


def _drawn(panel: Panel, restore: Restore) -> list[Span]:
    """The spans that a panel shows, which may stand out of its window on either side."""
    begin_us, end_us = _window(panel, restore)
    lanes = _lanes(panel, restore)
    return [
        span
        for span in restore.spans
        if span.lane in lanes
        and span.name in STAGE_OF
        and span.end_us - span.begin_us >= _LEAST_US
        and span.begin_us < end_us
        and span.end_us > begin_us
    ]


def _panel(panel: Panel, restore: Restore, spans: Sequence[Span], y: float) -> list[str]:
    """A title, lanes with their names and bars, and an axis of milliseconds since the restore began."""
    begin_us, end_us = _window(panel, restore)
    lanes = _lanes(panel, restore)
    plot = _WIDTH - _LEFT - _RIGHT

    def x(at_us: float) -> float:
        return _LEFT + (min(max(at_us, begin_us), end_us) - begin_us) / (end_us - begin_us) * plot

    shown = "all of it"
    if end_us - begin_us < restore.end_us - restore.begin_us:
        shown = f"the {'last' if panel.at_end else 'first'} {panel.width_us / 1000:g} ms"
    out = [f'<text class="t" x="12" y="{_n(y)}">{saxutils.escape(panel.title)}: {shown}</text>']
    top, bottom = y + 12, y + 12 + _LANE * len(lanes)
    step_us = _tick_step(end_us - begin_us)
    first, last = (begin_us - restore.begin_us) / step_us, (end_us - restore.begin_us) / step_us
    for tick in range(math.ceil(first), math.floor(last) + 1):
        at = x(restore.begin_us + tick * step_us)
        label = f"{tick * step_us / 1000:g} ms"
        anchor = "end" if at > _WIDTH - _RIGHT - 24 else "middle"
        out.append(f'<path class="g" d="M{_n(at)} {_n(top)}V{_n(bottom)}"/>')
        out.append(f'<text class="a" text-anchor="{anchor}" x="{_n(at)}" y="{_n(bottom + 17)}">{label}</text>')
    for row, lane in enumerate(lanes):
        out.append(f'<text x="12" y="{_n(top + row * _LANE + 16)}">{saxutils.escape(lane)}</text>')
    for stage in STAGES:
        path = ""
        for span in spans:
            if STAGE_OF[span.name] is stage:
                left, right = x(span.begin_us), x(span.end_us)
                wide = max(right - left - 0.6, _LEAST_PIXELS)  # a hair between two reads
                at = top + lanes.index(span.lane) * _LANE + (_LANE - _BAR) / 2
                left = min(left, _WIDTH - _RIGHT - wide)
                path += f"M{_n(left)} {_n(at)}h{_n(wide)}v{_BAR}h-{_n(wide)}z"
        if path:
            out.append(f'<path fill="{stage.colour}" d="{path}"/>')
    return out


def _tick_step(width_us: float) -> float:
    """The step of the axis that gives about four ticks: 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(width_us / 4))
    return min((factor * power for factor in (1, 2, 5, 10)), key=lambda step: abs(width_us / step - 4))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
