"""An axis of values from zero, and where its ticks stand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from coldsnap._bench.html.canvas import SMALL, WIDTH, Sheet

MARGIN = 12


class Axis(NamedTuple):
    """Values from 0 to ``most``, drawn from ``left`` to ``right``.

    Attributes:
        most: The largest value that is drawn; above zero.
        unit: Stands behind the last tick.
        left: Of the value 0, in points.
        right: Of ``most``, in points.
    """

    most: float
    unit: str
    left: float = MARGIN
    right: float = WIDTH - MARGIN

    def x(self, value: float) -> float:
        """Where a value stands."""
        return self.left + value / self.most * (self.right - self.left)

    def ticks(self) -> Iterator[float]:
        """Four to seven values with few digits, 0 the first of them."""
        step = round_step(self.most / 6)
        for number in range(math.floor(self.most / step + 1e-9) + 1):
            yield number * step

    def draw(self, sheet: Sheet, top: float, bottom: float) -> None:
        """Draw lines behind the data from ``top`` to ``bottom``, and their values below."""
        ticks = list(self.ticks())
        for value in ticks:
            at = self.x(value)
            sheet.line(at, top, bottom, "grid")
            words = f"{value:g} {self.unit}" if value == ticks[-1] else f"{value:g}"
            near = self.right - at < 7 * len(words) / 2
            where, side = (self.right, "right") if near else (at, "center" if value else "left")
            sheet.text(where, bottom + 12, words, ha=side, size=SMALL, role="soft")


def round_step(least: float) -> float:
    """The next step upwards that is 1, 2 or 5 times a power of ten."""
    power = float(10 ** math.floor(math.log10(least)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
