"""What people see of a calibration: progress bar, two tables, the last line. 80 columns are enough, in a pipe too."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coldsnap._bench import workspace
from coldsnap._bench.ceilings import Ceiling, best
from coldsnap._bench.sizes import format_rate, format_size


class Step(Protocol):
    """Something to take samples of: a ceiling or a case."""

    @property
    def label(self) -> str: ...

    def sample(self) -> None: ...


Advance = Callable[[str], None]


@contextlib.contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Show a bar on stderr if that is a terminal.

    Yields:
        A function to call with the name of each of `total` steps as it begins.
    """
    if not sys.stderr.isatty():
        yield lambda label: None
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = False

        def advance(label: str) -> None:
            nonlocal begun
            bar.update(task, description=label, advance=1 if begun else 0)
            begun = True

        yield advance


def run_rounds(steps: Sequence[Step], samples: range, until: float, advance: Advance) -> None:
    """Take one sample of each step in turn, round by round: a drive that changes its pace changes it for all alike.

    Args:
        steps: What is compared with one another.
        samples: Least and most rounds, as ``range(least, most)``.
        until: Time of the monotonic clock after which the least is enough.
        advance: From `progress`.
    """
    for taken in range(samples.stop):
        if taken >= samples.start and time.monotonic() > until:
            break
        for step in steps:
            workspace.go_on()
            advance(step.label)
            step.sample()


_PLACES = {"host": "host", "device": "dev", "both": "both"}


def print_tables(found: list[Ceiling], results: dict[str, Any]) -> None:
    """Print ceilings and cases to stdout."""
    console = Console(highlight=False, soft_wrap=False)
    # Rules are drawn for eyes only; in a pipe they would be one more thing to strip.
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD if console.is_terminal else None, "pad_edge": False}
    style |= {"padding": (0, 2, 0, 0), "header_style": "bold"}

    table = Table("ceiling", **style)
    for title in ("threads", "GB/s", "lowest", "highest"):
        table.add_column(title, justify="right")
    for each in _ceilings_to_show(found):
        rates = [format_rate(value) for value in (each.median, min(each.samples), max(each.samples))]
        table.add_row(each.family.replace("_", " ") + (" (mixed)" if each.mixed else ""), str(each.threads), *rates)
    _print_table(console, table)
    ring = next(each for each in results["ceilings"] if each["unit"] == "seconds")
    print(f"ring ready in {ring['median'] * 1e3:.1f} ms, not part of the times below")
    print()

    placed = any(case["place"] != "host" for case in results["cases"])
    table = Table("route", "cache", "digest", *(["at"] if placed else []), **style)
    # 80 columns have no room for more.
    for title in ("chunk", "depth", "thr", "ms", "GB/s", "%" if placed else "% ceil"):
        table.add_column(title, justify="right")
    table.add_column("limit")
    for case in results["cases"]:
        table.add_row(
            case["route"],
            case["cache"],
            case["digest"],
            *([_PLACES[case["place"]]] if placed else []),
            format_size(case["chunk_bytes"]).replace("iB", "").replace(" ", ""),
            str(case["queue_depth"]),
            str(case["threads"]),
            f"{case['median_s'] * 1e3:.0f}",
            format_rate(case["bytes_per_second"]),
            "-" if case["ratio"] is None else f"{case['ratio'] * 100:.0f}",
            case["limiting_stage"],
        )
    _print_table(console, table)


def print_best(results: dict[str, Any], written: Path) -> None:
    """Name the fastest case with all digests per cache state; the last line has the routes and the file."""
    routes: list[str] = []
    for state in ("cold", "warm", "mixed"):
        rows = [row for row in results["cases"] if row["cache"] == state and row["digest"] == "crc32+sha256"]
        # What could not be proved answers no question, unless there is nothing else.
        if rows and not (state == "mixed" and routes):
            row = max(rows, key=lambda each: each["bytes_per_second"])
            setting = f"chunk {format_size(row['chunk_bytes'])}, depth {row['queue_depth']}, {row['threads']} threads"
            print(f"fastest {state}: {row['route']}, {setting}: {format_rate(row['bytes_per_second'])} GB/s")
            routes.append(f"{row['route']} when {state}")
    best = f"best route here: {', '.join(routes)}; " if routes else ""
    print(f"{best}results: {written}")


def _print_table(console: Console, table: Table) -> None:
    """Print a table; in a pipe without the spaces that fill its last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _ceilings_to_show(found: list[Ceiling]) -> list[Ceiling]:
    """Pick one line per family, its fastest thread count; one core and all cores for what runs on cores."""
    rows = []
    for family in dict.fromkeys(each.family for each in found):
        of_family = [each for each in found if each.family == family and each.samples]
        if family in ("memory_copy", "crc32", "sha256t"):
            rows += of_family
        elif of_family:
            rows.append(best(found, family) or max(of_family, key=lambda each: each.median))
    return rows
