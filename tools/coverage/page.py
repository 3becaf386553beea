"""docs/coverage.md, from what a run kept and what was explained by hand."""

from __future__ import annotations

import itertools

from tools.coverage.gaps import COMMAND, EXPLAINED, ROOMS, Count, Explained, Gap, Measured

_HEAD = f"""# Which lines the tests reach

Written by `{COMMAND}`, on a machine without a GPU; don't edit. A line counts as covered when any test of
`//cc/...`, `//py/...` or `//tests/...` without the tags `gpu`, `large` and `engine` ran it. That says where no test has
been, and nothing of what a test asserts. How it is counted: [testing.md](testing.md#lines-that-no-test-reaches).
"""

_GAPS = f"""
## What no test reaches, and why

Of the rooms that weights pass on their way into an artifact and out of it, every stretch of lines without a test, by its
first line. The reasons stand in `{EXPLAINED}`; a stretch without one fails the run.
"""


def render(measured: Measured, explained: Explained) -> str:
    """The whole page."""
    parts = [_HEAD.rstrip("\n")]
    parts += _table("C++", measured.cpp, explained.folders)
    parts += _table("Python", measured.python, explained.folders)
    parts.append(_GAPS.rstrip("\n"))
    for room in ROOMS:
        parts += _room(room, measured, explained)
    return "\n".join(parts).rstrip("\n") + "\n"


def percent(count: Count) -> str:
    """Rounded down to a tenth, so that only what is whole says 100.0."""
    return f"{count.covered * 1000 // count.lines / 10:.1f}" if count.lines else "-"


def _table(language: str, counts: dict[str, Count], notes: dict[str, str]) -> list[str]:
    rows = [
        "",
        f"## {language}",
        "",
        "| folder | lines | covered | percent | not seen here |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for folder, count in sorted(counts.items()):
        rows.append(f"| `{folder}` | {count.lines} | {count.covered} | {percent(count)} | {notes.get(folder, '')} |")
    total = sum(counts.values(), Count())
    return [*rows, f"| all | {total.lines} | {total.covered} | {percent(total)} | |"]


def _room(room: str, measured: Measured, explained: Explained) -> list[str]:
    rows = ["", f"### {room}", ""]
    gaps = sorted(gap for gap in measured.gaps if gap.file.startswith(f"{room}/"))
    if not gaps:
        return [*rows, "Nothing."]
    rows += ["| function | from | lines | why there is no test |", "| --- | --- | ---: | --- |"]
    for file, group in itertools.groupby(gaps, key=lambda gap: gap.file):
        rows.append(f"| **{file.removeprefix(f'{room}/')}** | | | |")
        rows += [_row(gap, measured.gaps[gap], explained.gaps.get(gap, "**not explained**")) for gap in group]
    return rows


def _row(gap: Gap, lines: int, reason: str) -> str:
    return f"| {_code(gap.function)} | {_code(gap.text)} | {lines} | {reason} |"


def _code(text: str) -> str:
    """In code marks, in a cell of a table."""
    return "`` " + text.replace("|", "\\|") + " ``" if "`" in text else "`" + text.replace("|", "\\|") + "`"
