"""What a calibration recommends, and why: per state of the page cache the best route, per route the best setting.

A setting takes the place of the one that restores have by themselves only if it was clearly faster in the same rounds
(`_bench.compare`): the largest of many noisy numbers is always too large.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from coldsnap._bench.cases import ALL_DIGESTS, SHAPE
from coldsnap._bench.compare import Interval, ratio_of
from coldsnap._bench.sizes import format_rate, format_size

# Of one run and its own rounds, and a wrong choice costs little: so three samples may decide.
_ALPHA = 0.10
_STATES = ("cold", "half", "warm", "mixed")
Entry = dict[str, Any]


def recommendations(document: Entry) -> list[Entry]:
    """Recommend one case for each state of the page cache, and one capture.

    Args:
        document: results.json with ``cases`` and ``request``.
    Returns:
        For each ``operation`` and ``cache`` the ``route``, its setting, ``bytes_per_second`` and ``why`` in words.
    """
    found: list[Entry] = []
    for state in _STATES:
        rows = [row for row in _of_the_blob(document, "hydrate") if row["cache"] == state]
        best = [best_of(rows, route, document["request"]) for route in dict.fromkeys(row["route"] for row in rows)]
        chosen = sorted((row for row in best if row), key=lambda row: -row["bytes_per_second"])
        # What could not be proved answers no question, unless there is nothing else.
        if chosen and not (state == "mixed" and found):
            found.append(_entry(chosen[0], _why(chosen, rows, document["request"])))
    captures = _of_the_blob(document, "capture")
    if captures:
        best_capture = max(captures, key=lambda row: row["bytes_per_second"])
        found.append(_entry(best_capture, "the fastest measured, and captures have no settings of their own"))
    return found


def best_of(rows: Sequence[Entry], route: str, request: Entry) -> Entry | None:
    """The entry with a route's best setting: the default's, unless another is clearly faster; None without any."""
    rows = [row for row in rows if row["route"] == route]
    if not rows:
        return None
    best = max(rows, key=lambda row: row["bytes_per_second"])
    base = default_of(rows, request)
    return base if base is not None and not _clearly(_faster(best, base)) else best


def default_of(rows: Sequence[Entry], request: Entry) -> Entry | None:
    """The entry with the setting that restores by this route have without a profile, if it was measured."""
    for row in rows:
        wanted = request["drive"] if row["route"] == "direct" else request["setting"]
        if {key: row[key] for key in SHAPE} == wanted and row["direct"] in (None, request["drive"]):
            return row
    return None


def restores_of(document: Entry, route: str, state: str) -> list[Entry]:
    """The verified restores of the blob by one route in one state, with enough samples to count."""
    rows = _of_the_blob(document, "hydrate")
    return [row for row in rows if (row["route"], row["cache"]) == (route, state)]


def _of_the_blob(document: Entry, operation: str) -> list[Entry]:
    """Entries that may be chosen: of the main blob, of all digests (half cached: of crc32), with the least samples."""
    found = []
    for row in document["cases"]:
        digest = "crc32" if row["asked"]["cache"] == "half" else ALL_DIGESTS
        whole = row["payload_bytes"] == document["payload_bytes"]
        enough = len(row["samples_s"]) >= document["request"]["least"]
        if row["operation"] == operation and row["digest"] == digest and whole and enough:
            found.append(row)
    return found


def _entry(row: Entry, why: str) -> Entry:
    kept = ("operation", "cache", "route", "place", *SHAPE, "direct", "bytes_per_second", "ratio")
    return {key: row[key] for key in kept} | {"why": why}


def _why(chosen: Sequence[Entry], rows: Sequence[Entry], request: Entry) -> str:
    """Say what speaks for the first of `chosen`: against the next route, against the default, against the ceiling."""
    best, reasons = chosen[0], []
    if len(chosen) > 1:
        reasons.append(f"{_times(_faster(best, chosen[1]))} as {chosen[1]['route']}")
    base = default_of([row for row in rows if row["route"] == best["route"]], request)
    tried = sum(row["route"] == best["route"] for row in rows)
    if base is best and tried > 1:
        reasons.append(f"no other setting was clearly faster than the default ({tried - 1} measured)")
    elif base is not None and base is not best:
        reasons.append(f"{_times(_faster(best, base))} as the default {setting_text(base)}")
    if best["ratio"] is not None:
        reasons.append(f"{best['ratio']:.0%} of {best['ceiling'].partition('.')[0].replace('_', ' ')}")
    return "; ".join(reasons) or "the only one measured"


def setting_text(row: Entry) -> str:
    """A setting as the table shows it."""
    return f"chunk {format_size(row['chunk_bytes'])}, depth {row['queue_depth']}, {row['threads']} threads"


def lines_of(entry: Entry) -> list[str]:
    """A recommendation as lines for people, its reasons below it."""
    doing = "restore" if entry["operation"] == "hydrate" else entry["operation"]
    state = "" if entry["cache"] == "new" else f" {entry['cache']}"
    rate = f"{format_rate(entry['bytes_per_second'])} GB/s"
    first = f"best {doing}{state}: {entry['route']}, {setting_text(entry)}: {rate}"
    return list(_folded(first, *(f"  {reason}" for reason in entry["why"].split("; "))))


def _folded(*lines: str) -> Iterator[str]:
    for line in lines:
        yield from textwrap.wrap(line, 80, subsequent_indent="    ")


def _faster(one: Entry, other: Entry) -> Interval:
    return ratio_of(_rates(other), _rates(one), _ALPHA)


def _rates(row: Entry) -> list[float]:
    return [row["payload_bytes"] / sample for sample in row["samples_s"]]


def _clearly(interval: Interval) -> bool:
    # Without a margin: a default is no better than another setting, so any advantage that is none of chance will do.
    return interval.low is not None and interval.low > 1


def _times(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.ratio:.2f} times as fast"
    return f"{interval.ratio:.2f} times ({interval.low:.2f} to {interval.high:.2f}) as fast"
