"""The plots of a report. Each takes plain data, and shows every value from zero on and every sample that there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coldsnap._bench.html import theme
from coldsnap._bench.html.axes import MARGIN, Axis
from coldsnap._bench.html.canvas import SMALL, WIDTH, Plot, Sheet


class Bar(NamedTuple):
    """A row of `bars`: what was measured, and what bounds it.

    Attributes:
        label: What it is.
        detail: How it was run.
        value: Of the bar: the median.
        said: The value in words, with its unit.
        samples: Every sample, in the bar's unit.
        colour: Of the bar.
        bound: The ceiling, in the bar's unit; None where nothing bounds it.
        share: What the value is of it, in words.
    """

    label: str
    detail: str
    value: float
    said: str
    samples: Sequence[float]
    colour: str = theme.OTHER
    bound: float | None = None
    share: str = ""


class Cell(NamedTuple):
    """A cell of `heat_map`: its column, its row, its value, and the words in it, the second ones small."""

    column: str
    row: str
    value: float
    said: str
    below: str = ""


_PITCH, _BAR = 62, 16


def bars(name: str, title: str, note: str, unit: str, rows: Sequence[Bar]) -> Plot:
    """Draw a bar for each median, with a dot for each sample and a dashed line where its ceiling is.

    Args:
        name: Of the plot's file.
        title: One line.
        note: What else there is to say.
        unit: Of the axis.
        rows: From top to bottom, at least one.
    """
    height = _PITCH * len(rows) + 30
    sheet = Sheet(height)
    most = max(max(row.value, row.bound or 0, *row.samples) for row in rows)
    axis = Axis((most or 1) * 1.03, unit)
    axis.draw(sheet, 6, height - 26)
    for number, row in enumerate(rows):
        top = _PITCH * number
        sheet.text(MARGIN, top + 13, row.label)
        sheet.text(WIDTH - MARGIN, top + 13, row.said, ha="right", weight="bold")
        sheet.text(MARGIN, top + 30, row.detail, size=SMALL, role="soft")
        sheet.text(WIDTH - MARGIN, top + 30, row.share, ha="right", size=SMALL, role="soft")
        sheet.box(axis.x(0), axis.x(row.value), top + 40, top + 40 + _BAR, row.colour)
        sheet.dots([axis.x(each) for each in row.samples], [top + 40 + _BAR / 2] * len(row.samples))
        if row.bound is not None:
            at = axis.x(row.bound)
            sheet.line(at, top + 37, top + 43 + _BAR, "ink", front=True, dashed=True)
    return sheet.plot(name, title, note, f"{title}. " + "; ".join(map(_read_aloud, rows)))


def _read_aloud(row: Bar) -> str:
    return f"{row.label}: {row.said}" + (f", {row.share}" if row.share else "")


_CELL_HEIGHT, _ROW_LABEL = 48, 76


class Ladder(NamedTuple):
    """The columns or the rows of `heat_map`: what they are, and each one's value in order."""

    title: str
    values: Sequence[str]


def heat_map(name: str, title: str, note: str, columns: Ladder, rows: Ladder, cells: Sequence[Cell]) -> Plot:
    """Draw a colour for each pair of column and row: the stronger, the nearer to the largest value, and pale at zero.

    Args:
        name: Of the plot's file.
        title: One line.
        note: What else there is to say.
        columns: From left to right.
        rows: From top to bottom.
        cells: At least one; a pair of column and row without a cell stays empty.
    """
    height = _CELL_HEIGHT * len(rows.values) + 74
    sheet = Sheet(height)
    wide = (WIDTH - MARGIN - _ROW_LABEL) / len(columns.values)
    most = max(cell.value for cell in cells) or 1
    sheet.text(MARGIN, 13, rows.title, size=SMALL, role="soft")
    for number, row in enumerate(rows.values):
        sheet.text(_ROW_LABEL - 8, 26 + _CELL_HEIGHT * (number + 0.5), row, ha="right", size=SMALL)
    for number, column in enumerate(columns.values):
        sheet.text(_ROW_LABEL + wide * (number + 0.5), height - 36, column, ha="center", size=SMALL)
    sheet.text((_ROW_LABEL + WIDTH - MARGIN) / 2, height - 14, columns.title, ha="center", size=SMALL, role="soft")
    for cell in cells:
        left = _ROW_LABEL + wide * columns.values.index(cell.column)
        top = 26 + _CELL_HEIGHT * rows.values.index(cell.row)
        ground, words = theme.heat(cell.value / most)
        sheet.box(left + 1, left + wide - 1, top + 1, top + _CELL_HEIGHT - 1, theme.light(ground))
        weight = "bold" if cell.value == most else "normal"
        sheet.text(left + wide / 2, top + 17, cell.said, ha="center", role=words, weight=weight, ground=False)
        sheet.text(left + wide / 2, top + 35, cell.below, ha="center", role=words, size=SMALL - 1, ground=False)
    best = max(cells, key=lambda cell: cell.value)
    where = f"{columns.title} {best.column}, {rows.title} {best.row}"
    text = f"{title}. The largest: {best.said} at {where} ({best.below})"
    return sheet.plot(name, title, note, text)
