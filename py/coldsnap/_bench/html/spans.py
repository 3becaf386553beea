"""The plots of what took place when: a trace's threads, and the phases of a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coldsnap._bench import traces
from coldsnap._bench.html import theme
from coldsnap._bench.html.axes import MARGIN, Axis
from coldsnap._bench.html.canvas import SMALL, WIDTH, Plot, Sheet

_LANE, _LANE_BAR, _LANE_LABEL = 20, 14, 128
_KEY_LINE = 20
_LEAST_POINTS = 0.5  # what is nearer is drawn as one, what is shorter as long: a screen shows no less
# More threads do the same as these, and a page is read from top to bottom.
_LANES_OF_A_ROLE = 8


def timeline(name: str, title: str, restore: traces.Restore) -> Plot:
    """Draw what each thread of a restore did: a lane for each thread, a colour for each stage.

    Args:
        name: Of the plot's file.
        title: One line.
        restore: From `traces.restores_of`.
    """
    lanes = _lanes_to_show(restore)
    shown = [span for span in restore.spans if span.lane in lanes and span.name in traces.STAGE_OF]
    stages = [stage for stage in traces.STAGES if any(traces.STAGE_OF[span.name] is stage for span in shown)]
    bottom = _LANE * len(lanes) + 8
    sheet = Sheet(bottom + 34 + _KEY_LINE * len(stages))
    duration_ms = (restore.end_us - restore.begin_us) / 1000
    axis = Axis(duration_ms, "ms", left=_LANE_LABEL)
    axis.draw(sheet, 4, bottom)
    for row, lane in enumerate(lanes):
        sheet.text(MARGIN, 8 + _LANE * (row + 0.5), lane, size=SMALL)
    for stage in stages:
        of_stage = [span for span in shown if traces.STAGE_OF[span.name] is stage]
        boxes = []
        for row, lane in enumerate(lanes):
            top = 8 + _LANE * row + (_LANE - _LANE_BAR) / 2
            times = [
                (axis.x((span.begin_us - restore.begin_us) / 1000), axis.x((span.end_us - restore.begin_us) / 1000))
                for span in of_stage
                if span.lane == lane
            ]
            boxes += [(left, right, top, top + _LANE_BAR) for left, right in _joined(times)]
        sheet.boxes(boxes, stage.colour)
    _key(sheet, bottom + 34, {stage.meaning: stage.colour for stage in stages})
    left_out = len({span.lane for span in restore.spans}) - len(lanes)
    more = f", {left_out} more threads are left out" if left_out else ""
    text = f"{title}: {duration_ms:.1f} ms, {len(lanes)} threads{more}; {', '.join(each.meaning for each in stages)}"
    return sheet.plot(name, title, f"{duration_ms:.1f} ms{more}.", text)


def _lanes_to_show(restore: traces.Restore) -> list[str]:
    chosen: list[str] = []
    of_role: dict[str, int] = {}
    for lane in dict.fromkeys(span.lane for span in restore.spans):
        role = traces.role_of(lane)
        of_role[role] = of_role.get(role, 0) + 1
        if of_role[role] <= _LANES_OF_A_ROLE:
            chosen.append(lane)
    return chosen


def _joined(times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times, in points, without the gaps and the shortness that nobody sees: a large restore has 100,000 reads."""
    found: list[tuple[float, float]] = []
    for left, right in sorted(times):
        right = max(right, left + _LEAST_POINTS)
        if found and left - found[-1][1] < _LEAST_POINTS:
            found[-1] = (found[-1][0], max(found[-1][1], right))
        else:
            found.append((left, right))
    return found


class Phase(NamedTuple):
    """A part of a start, in seconds from its beginning."""

    name: str
    start_s: float
    end_s: float


class Mark(NamedTuple):
    """A moment of a start, in seconds from its beginning."""

    name: str
    at_s: float


class Start(NamedTuple):
    """A row of `waterfall`."""

    label: str
    phases: Sequence[Phase]
    marks: Sequence[Mark] = ()


_START_PITCH, _PHASE_BAR = 62, 20
_LETTER = 7.6  # points that a letter of `SMALL` takes at most


def waterfall(name: str, title: str, note: str, starts: Sequence[Start]) -> Plot:
    """Draw the phases of each start one behind the other, on one axis for all, with a mark for each moment.

    Args:
        name: Of the plot's file.
        title: One line.
        note: What else there is to say.
        starts: From top to bottom, at least one with a phase. Time that no phase covers stays empty.
    """
    names = list(dict.fromkeys(phase.name for start in starts for phase in start.phases))
    # A ninth phase would look like the first, so what comes last shares one colour and has its name in the words.
    colours = {each: theme.DATA[min(number, len(theme.DATA) - 1)] for number, each in enumerate(names)}
    bottom = _START_PITCH * len(starts) + 6
    sheet = Sheet(bottom + 34 + _KEY_LINE * len(colours))
    axis = Axis(max(_end_s(start) for start in starts) * 1.02, "s")
    axis.draw(sheet, 6, bottom)
    for number, start in enumerate(starts):
        _start_row(sheet, axis, _START_PITCH * number, start, colours)
    _key(sheet, bottom + 34, colours)
    return sheet.plot(name, title, note, f"{title}. " + "; ".join(map(_start_aloud, starts)))


def _start_row(sheet: Sheet, axis: Axis, top: float, start: Start, colours: Mapping[str, str]) -> None:
    sheet.text(MARGIN, top + 15, start.label)
    sheet.text(WIDTH - MARGIN, top + 15, f"{_end_s(start):.2f} s", ha="right", weight="bold")
    for phase in start.phases:
        left, right = axis.x(phase.start_s), max(axis.x(phase.end_s), axis.x(phase.start_s) + 1)
        sheet.box(left, right, top + 28, top + 28 + _PHASE_BAR, colours[phase.name])
        words = f"{phase.end_s - phase.start_s:.2f}"
        if right - left > _LETTER * len(words) + 4:
            middle = top + 28 + _PHASE_BAR / 2
            on = theme.words_on(colours[phase.name])
            sheet.text((left + right) / 2, middle, words, ha="center", size=SMALL, color=on, zorder=3, ground=False)
    ends = [axis.x(mark.at_s) for mark in start.marks]
    for at in ends:
        sheet.line(at, top + 24, top + 32 + _PHASE_BAR, "ink", front=True)
    if ends:
        # All in one line, since marks may stand close together.
        words = ", ".join(f"{mark.name} {mark.at_s:.2f} s" for mark in start.marks)
        side, at = ("right", max(ends) - 4) if max(ends) > WIDTH / 2 else ("left", min(ends) + 4)
        sheet.text(at, top + 57, words, ha=side, size=SMALL)


def _end_s(start: Start) -> float:
    return max([0.0, *(phase.end_s for phase in start.phases), *(mark.at_s for mark in start.marks)])


def _start_aloud(start: Start) -> str:
    parts = [f"{phase.name} {phase.end_s - phase.start_s:.2f} s" for phase in start.phases]
    parts += [f"{mark.name} at {mark.at_s:.2f} s" for mark in start.marks]
    return f"{start.label}: {', '.join(parts)}"


def _key(sheet: Sheet, top: float, colours: Mapping[str, str]) -> None:
    """Say what each colour means."""
    for row, (meaning, colour) in enumerate(colours.items()):
        at = top + _KEY_LINE * row
        sheet.box(MARGIN, MARGIN + 13, at, at + 13, colour)
        sheet.text(MARGIN + 22, at + 6.5, meaning, size=SMALL)
