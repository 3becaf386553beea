"""What people see of a calibration: its tables, the comparison, what is best. 80 columns are enough, in a pipe too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from coldsnap._bench.ceilings import PROCESSORS, Ceiling, best
from coldsnap._bench.compare import VERDICTS
from coldsnap._bench.recommend import lines_of
from coldsnap._bench.sizes import KIB, format_rate, format_size

_MOST_ROWS = 40
_PLACES = {"host": "host", "device": "dev", "both": "both"}


def print_tables(found: list[Ceiling], results: dict[str, Any]) -> None:
    """Print ceilings and cases to stdout; of a sweep or a search, what stands in results.json is too long to print."""
    console = Console(highlight=False, soft_wrap=False)
    table = Table("ceiling", **_style(console))
    for title in ("threads", "GB/s", "lowest", "highest"):
        table.add_column(title, justify="right")
    for each in _ceilings_to_show(found):
        rates = [format_rate(value) for value in (each.median, min(each.samples), max(each.samples))]
        table.add_row(each.family.replace("_", " ") + (" (mixed)" if each.mixed else ""), str(each.threads), *rates)
    _print_table(console, table)
    ring = next(each for each in results["ceilings"] if each["unit"] == "seconds")
    print(f"ring ready in {ring['median'] * 1e3:.1f} ms, not part of the times of restores below")
    for operation, title in (("hydrate", "route"), ("capture", "capture")):
        rows = [row for row in results["cases"] if row["operation"] == operation]
        rows = [row for row in rows if row["payload_bytes"] == results["payload_bytes"]]
        if rows:
            print()
            _print_cases(console, title, rows)
    small = [row for row in results["cases"] if row["payload_bytes"] != results["payload_bytes"]]
    if small:
        print()
        each = small[0]["payload_bytes"] // small[0]["extents"]
        _print_cases(console, f"{small[0]['extents']} x {each // KIB}K", small)


def _print_cases(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    placed = any(row["place"] != "host" for row in rows)
    table = Table(title, "cache", "digest", *(["at"] if placed else []), **_style(console))
    # 80 columns have no room for more.
    for column in ("chunk", "depth", "thr", "ms", "GB/s", "%" if placed else "% ceil"):
        table.add_column(column, justify="right")
    table.add_column("limit")
    for row in rows[:_MOST_ROWS]:
        table.add_row(
            row["route"],
            row["cache"],
            row["digest"],
            *([_PLACES[row["place"]]] if placed else []),
            format_size(row["chunk_bytes"]).replace("iB", "").replace(" ", ""),
            str(row["queue_depth"]),
            str(row["threads"]),
            f"{row['median_s'] * 1e3:.0f}",
            format_rate(row["bytes_per_second"]),
            "-" if row["ratio"] is None else f"{row['ratio'] * 100:.0f}",
            row["limiting_stage"],
        )
    _print_table(console, table)
    if rows[_MOST_ROWS:]:
        print(f"and {len(rows) - _MOST_ROWS} more in results.json")


def print_comparison(rows: list[dict[str, Any]], name: str) -> None:
    """Print how each case compares with the same one of the file `name`, and how many came out how."""
    console = Console(highlight=False, soft_wrap=True)
    print(f"\nagainst {name}, rates as multiples of its own (95 % interval):")
    table = Table("verdict", "times", "interval", "case", **_style(console))
    for row in rows:
        interval = "-" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
        table.add_row(row["verdict"], f"{row['ratio']:.2f}", interval, row["case"])
    _print_table(console, table)
    counts = [(word, sum(row["verdict"] == word for row in rows)) for word in VERDICTS]
    print(f"of {len(rows)} cases: " + ", ".join(f"{count} {word}" for word, count in counts))
    for reason in dict.fromkeys(row["why"] for row in rows if row["why"] and row["verdict"] == "unclear"):
        print(f"unclear: {reason}")


def print_best(results: dict[str, Any], written: Path) -> None:
    """Print the recommendations; the last line has the routes and the file."""
    routes = []
    for entry in results["recommendation"]:
        print("\n".join(lines_of(entry)))
        if entry["operation"] == "hydrate":
            routes.append(f"{entry['route']} when {entry['cache']}")
    best = f"best route here: {', '.join(routes)}; " if routes else ""
    print(f"{best}results: {written}")


def _style(console: Console) -> dict[str, Any]:
    # Rules are drawn for eyes only; in a pipe they would be one more thing to strip.
    look = box.SIMPLE_HEAD if console.is_terminal else None
    return {"box": look, "pad_edge": False, "padding": (0, 2, 0, 0), "header_style": "bold"}


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
        if family.startswith(PROCESSORS):
            continue  # no bound of anything: for comparisons
        if family in ("memory_copy", "crc32", "sha256t"):
            rows += of_family
        elif of_family:
            rows.append(best(found, family) or max(of_family, key=lambda each: each.median))
    return rows
