"""A report as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere.

A page is a title and sections; a section has text, tables and plots, as plain data. The browser is forbidden to load
anything (Content-Security-Policy), and the theme follows the reader's system or one of three buttons, by CSS alone.
Whatever comes from a results file is escaped: the file may be somebody else's.
"""

from __future__ import annotations

import base64
import html
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coldsnap import errors, new_file
from coldsnap._bench.html import theme
from coldsnap._bench.html.canvas import Plot

PAGE, PLOTS = "report.html", "plots"


class Text(NamedTuple):
    """A paragraph."""

    words: str


class Table(NamedTuple):
    """A table; as wide as it has to be, in a box that scrolls where the page is narrower.

    Attributes:
        titles: Of the columns.
        rows: As many texts each.
        right: Titles of the columns that are aligned to the right, such as numbers.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


class Facts(NamedTuple):
    """Names and their values."""

    pairs: Sequence[tuple[str, str]]


Part = Text | Table | Facts | Plot


class Section(NamedTuple):
    """A part of a page, with a heading."""

    title: str
    parts: Sequence[Part]


def write(folder: Path, title: str, sections: Sequence[Section], documents: Mapping[str, str]) -> list[Path]:
    """Write ``report.html``, and beside it each plot as ``plots/NAME.png``.

    Args:
        folder: Made if it is missing, its parent too; files of these names are replaced, each whole or not at all.
        title: Of the page.
        sections: From top to bottom.
        documents: File name -> JSON text that the page offers for download.
    Returns:
        The files, the page first.
    Raises:
        IoError, NoSpaceError: One can't be written; those written before it stay.
    """
    files = {PAGE: page(title, sections, documents).encode()}
    for section in sections:
        files |= {f"{PLOTS}/{part.name}.png": part.png for part in section.parts if isinstance(part, Plot)}
    try:
        (folder / PLOTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        doing = f"make the folder {PLOTS} of the report in {folder}"
        raise errors.from_errno(error, doing, remedy="give another --output") from error
    for name, data in files.items():
        path = folder / name
        new_file.replace_file(path.parent, path.name, data)
    return [folder / name for name in files]


def page(title: str, sections: Sequence[Section], documents: Mapping[str, str]) -> str:
    """The page as text; see `write`."""
    downloads = "".join(_download(name, document) for name, document in documents.items())
    themes = "".join(
        f'<input type="radio" name="theme" id="{each}"{" checked" if each == "auto" else ""}>'
        f'<label for="{each}">{each}</label>'
        for each in ("auto", "light", "dark")
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{_STYLE}
</style>
</head>
<body>
<header>
<h1>{html.escape(title)}</h1>
<nav><fieldset><legend>theme</legend>{themes}</fieldset><div>{downloads}</div></nav>
</header>
<main>
{"".join(map(_section, sections))}</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    parts = []
    for drawn, run in itertools.groupby(section.parts, lambda part: isinstance(part, Plot)):
        texts = "\n".join(map(_part, run))
        parts.append(f'<div class="plots">\n{texts}\n</div>' if drawn else texts)
    return f"<section>\n<h2>{html.escape(section.title)}</h2>\n" + "\n".join(parts) + "\n</section>\n"


def _part(part: Part) -> str:
    if isinstance(part, Plot):
        return _figure(part)
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Text):
        return f"<p>{html.escape(part.words)}</p>"
    pairs = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in part.pairs)
    return f"<dl>{''.join(pairs)}</dl>"


def _figure(plot: Plot) -> str:
    file = f"{PLOTS}/{html.escape(plot.name)}.png"
    heading = f'<h3>{html.escape(plot.title)} <a href="{file}" download>PNG</a></h3>'
    note = f"<p>{html.escape(plot.note)}</p>" if plot.note else ""
    return f"<figure><figcaption>{heading}{note}</figcaption>\n{plot.svg}</figure>"


def _table(table: Table) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        found = ""
        for title, text in zip(table.titles, texts, strict=True):
            side = ' class="r"' if title in table.right else ""
            found += f"<{tag}{side}>{html.escape(text)}</{tag}>"
        return f"<tr>{found}</tr>"

    body = "\n".join(cells("td", row) for row in table.rows)
    head = cells("th", table.titles)
    # A box that scrolls has to be reachable by the keyboard.
    return f'<div class="wide" tabindex="0"><table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _download(name: str, document: str) -> str:
    data = base64.b64encode(document.encode()).decode()
    link = f"data:application/json;base64,{data}"
    return f'<a class="button" download="{html.escape(name)}" href="{link}">{html.escape(name)}</a>'


_STYLE = f""":root{{color-scheme:light;{theme.variables(dark=False)}}}
@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{theme.variables(dark=True)}}}}}
:root:has(#light:checked){{color-scheme:light;{theme.variables(dark=False)}}}
:root:has(#dark:checked){{color-scheme:dark;{theme.variables(dark=True)}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1120px;padding:16px;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}}
h1{{font-size:26px;line-height:1.25;margin:8px 0 16px}}
h2{{font-size:20px;margin:0 0 8px}}
nav,nav div{{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center}}
fieldset{{border:0;margin:0;padding:0;display:flex}}
legend{{float:left;padding:4px 8px 4px 0;color:var(--soft)}}
input{{position:absolute;opacity:0}}
label,.button{{padding:4px 10px;border:1px solid var(--grid);background:var(--surface);cursor:pointer}}
label+input+label{{border-left:0}}
input:checked+label{{background:var(--ink);color:var(--surface)}}
input:focus-visible+label,a:focus-visible,.wide:focus-visible{{outline:3px solid var(--link);outline-offset:1px}}
a{{color:var(--link)}}
section{{background:var(--surface);border:1px solid var(--grid);border-radius:8px;padding:16px;margin:16px 0}}
section>*+*{{margin-top:16px}}
.plots{{columns:420px 2;column-gap:32px}}
figure{{margin:0;padding-bottom:16px;break-inside:avoid}}
p{{max-width:80ch;margin:0}}
h3{{font-size:16px;margin:0}}
h3 a{{font-weight:400;margin-left:8px}}
figcaption p{{color:var(--soft);font-size:14px}}
/* The sheet has a margin of its own, which would set it in from the words above. */
svg{{display:block;width:calc(100% + 24px);height:auto;max-width:500px;margin:8px -12px 0}}
svg *{{stroke-linejoin:round}}
svg text{{font-family:system-ui,sans-serif!important}}
.wide{{overflow-x:auto}}
table{{border-collapse:collapse;font-size:14px;line-height:1.35}}
th,td{{padding:5px 10px;border-bottom:1px solid var(--grid);text-align:left;white-space:nowrap}}
td:last-child{{white-space:normal;min-width:200px}}
th{{color:var(--soft);font-weight:600}}
.r{{text-align:right;font-variant-numeric:tabular-nums}}
dl{{margin:0;display:grid;grid-template-columns:fit-content(40%) 1fr;gap:4px 16px}}
dt{{color:var(--soft)}}
dd{{margin:0;min-width:0}}
@media (max-width:600px){{body,section{{padding:12px}}th,td{{padding:5px 6px}}
td:first-child{{white-space:normal;min-width:120px}}}}"""
