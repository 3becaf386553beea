"""Where matplotlib is: a sheet of fixed width to draw on, and what becomes of it.

Units are points of a sheet that is 420 wide, and stands in half of a page. A phone shows it on 310 pixels, so letters of
14 are still 10 high there. Only `Sheet` imports matplotlib, so nothing waits for it that draws no report.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax import saxutils

from coldsnap import errors
from coldsnap._bench.html import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 420
LARGE, SMALL = 14, 12
_POINTS_AN_INCH = 72
_PNG_DOTS_AN_INCH = 144  # two pixels a point: sharp on screens of twice the usual density
# Text stays text: it can be searched and read aloud, and the reader's own font is narrower than the one measured with.
_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "path.simplify": False}


class Plot(NamedTuple):
    """A picture of a report.

    Attributes:
        name: Of its file, without an ending.
        title: One line for people.
        note: What else there is to say about it.
        text: What it shows, in words, for those who can't see it.
        svg: With the variables of `theme`, to stand in a page.
        png: The same in light colours, with the title.
    """

    name: str
    title: str
    note: str
    text: str
    svg: str
    png: bytes


class Sheet:
    """A drawing of `WIDTH` by ``height`` points; x from the left, y from the top.

    Raises:
        RequestInvalidError: matplotlib is not installed.
    """

    def __init__(self, height: float) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise errors.RequestInvalidError(
                f"draw the plots of a report: matplotlib can't be imported ({error})",
                remedy="install it: pip install 'coldsnap[report]'",
            ) from error
        self._figure: Figure = Figure((WIDTH / _POINTS_AN_INCH, height / _POINTS_AN_INCH), _POINTS_AN_INCH)
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        self._axes.set_axis_off()
        self._axes.set(xlim=(0, WIDTH), ylim=(height, 0))

    def text(self, x: float, y: float, words: str, *, ground: bool = True, **style: Any) -> None:
        """Write words, their line's middle at ``y``.

        Args:
            x: Of their left end, or what ``ha`` names.
            y: Of the line's middle.
            words: One line.
            ground: Whether they cover the lines of an axis that is behind them.
            style: As matplotlib's text takes it; ``role`` is the colour.
        """
        colour = theme.light(style.pop("role", "ink"))
        look: dict[str, Any] = {"size": LARGE, "color": colour, "va": "center_baseline", "parse_math": False}
        if ground:
            look["bbox"] = {"facecolor": theme.light("surface"), "edgecolor": "none", "pad": 1.5}
        self._axes.text(x, y, words, **look | style)

    def box(self, left: float, right: float, top: float, bottom: float, colour: str) -> None:
        """Fill a rectangle."""
        self.boxes([(left, right, top, bottom)], colour)

    def boxes(self, boxes: list[tuple[float, float, float, float]], colour: str) -> None:
        """Fill many rectangles of one colour, given as for `box`, as one shape."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        outlines = [
            Path([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], closed=True)
            for left, right, top, bottom in boxes
        ]
        self._axes.add_patch(PathPatch(Path.make_compound_path(*outlines), facecolor=colour, linewidth=0, zorder=2))

    def line(
        self, x: float, top: float, bottom: float, role: str, *, front: bool = False, dashed: bool = False
    ) -> None:
        """Draw a vertical line: thin and behind everything else, or thick in front of boxes."""
        style = (0, (2, 1)) if dashed else "solid"
        order, width = (4, 2) if front else (0, 1)
        self._axes.plot((x, x), (top, bottom), color=theme.light(role), linewidth=width, linestyle=style, zorder=order)

    def dots(self, xs: list[float], ys: list[float]) -> None:
        """Draw dots that stand out of what is behind them."""
        ink, edge = theme.light("ink"), theme.light("surface")
        self._axes.scatter(xs, ys, s=36, color=ink, edgecolors=edge, linewidths=1, zorder=5)

    def plot(self, name: str, title: str, note: str, text: str) -> Plot:
        """End the drawing. What can't be in a file's name anywhere becomes a hyphen in ``name``."""
        import matplotlib

        name = re.sub(r"[^A-Za-z0-9]+", "-", name)
        svg, png = io.StringIO(), io.BytesIO()
        with matplotlib.rc_context(_SETTINGS | {"svg.hashsalt": name}):
            self._figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
            # Beside the page it stands alone, so it has its title above the sheet.
            above = 1 + SMALL / (self._figure.get_figheight() * _POINTS_AN_INCH)
            self._figure.text(0.03, above, title, size=LARGE, weight="bold", color=theme.light("ink"), parse_math=False)
            ground = theme.light("surface")
            self._figure.savefig(png, format="png", facecolor=ground, dpi=_PNG_DOTS_AN_INCH, bbox_inches="tight")
        return Plot(name, title, note, text, _inlined(svg.getvalue(), name, text), png.getvalue())


def _inlined(svg: str, name: str, text: str) -> str:
    """The SVG as an element of a page: themed, with names of its own, and without a head that a page has no use for."""
    body = svg[svg.index("<g ") : svg.rindex("</svg>")]
    view = re.search(r'viewBox="[^"]+"', svg)
    assert view  # every SVG of matplotlib's has one
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    label = saxutils.quoteattr(text)
    return f'<svg {view[0]} role="img" aria-label={label}>\n{theme.themed(body).strip()}\n</svg>'
