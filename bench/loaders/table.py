"""What people see of a comparison: a line for each loader, then a line for each loader and cache state."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.loaders.measure import Contestant
from coldsnap._bench.sizes import format_rate


def print_loaders(contestants: Sequence[Contestant]) -> None:
    """Print what starting gave: version, seconds, digests; or why a loader is not measured."""
    rows = [("loader", "version", "import, set-up", "first load", "bytes checked")]
    for each in contestants:
        if each.version is not None and each.start_s is not None and each.first_s is not None:
            times = (f"{each.start_s:.2f} s", f"{each.first_s:.2f} s")
            rows.append((each.loader.name, each.version, *times, each.loader.checks))
    _print_columns(rows, right=(2, 3))
    for each in contestants:
        if each.out:
            print(f"{each.loader.name} is not measured: {each.out}")
    print(flush=True)


def print_cases(document: dict[str, Any]) -> None:
    """Print ceilings and cases of a peers.json, and which loaders fell out on the way."""
    medians = {each["name"]: each["median"] for each in document["ceilings"]}
    bounds = dict.fromkeys(case["ceiling"] for case in document["cases"] if case["ceiling"])
    for name in bounds:
        print(f"ceiling {name}: {format_rate(medians[name])} GB/s")
    rows = [("loader", "cache", "GB/s", "lowest", "highest", "% of ceiling", "cached after", "how")]
    for case in document["cases"]:
        rates = [document["payload_bytes"] / each for each in case["samples_s"]]
        shown = [format_rate(each) for each in (case["bytes_per_second"], min(rates), max(rates))]
        ratio = "-" if case["ratio"] is None else f"{case['ratio'] * 100:.0f}"
        after = f"{statistics.median(case['residency_after']):.0%}"
        rows.append((case["loader"], case["cache"], *shown, ratio, after, case["how"]))
    _print_columns(rows, right=(2, 3, 4, 5, 6))
    for each in document["loaders"]:
        if each["out"] and each["first_s"] is not None:
            print(f"{each['name']} fell out: {each['out']}")


def _print_columns(rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        shown = [cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(cells)]
        print("  ".join(shown).rstrip())
