"""The rates of a results.json as plots: each case beside its ceiling, and chunk by depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coldsnap._bench.html import plots, theme
from coldsnap._bench.html.canvas import Plot
from coldsnap._bench.html.page import Section, Text
from coldsnap._bench.html.wording import (
    Results,
    blob_of,
    ceiling_name,
    kind_of,
    label_of,
    name_of,
    payload_of,
    setting_of,
)
from coldsnap._bench.sizes import format_rate, format_size

_STATES = {
    "cold": "Nothing of the file was in the page cache, so the drive decides.",
    "half": "Every other part of the file was in the page cache; no ceiling bounds that.",
    "warm": "The whole file was in the page cache. Direct reads pass it by: the drive bounds them.",
    "mixed": "Some of the file was in the page cache, so this is neither cold nor warm.",
    "new": "The file was not there before; its bytes were brought to the drive.",
}
_MOST_BARS = 12  # more are no picture; a sweep has hundreds
_HOW_TO_READ = (
    "A bar is the median of its samples, and each dot is a sample. The dashed line is the ceiling that bounds the case: "
    "what drive, memory or link reached in the same minutes."
)


def bars(results: Results) -> Section:
    """The cases beside their ceilings: a plot for each operation, state of the page cache and blob."""
    order = list(_STATES)
    groups: dict[tuple[str, int, str], list[Results]] = {}
    for case in results["cases"]:
        group = (str(case["operation"]), order.index(case["cache"]), blob_of(results, case))
        groups.setdefault(group, []).append(case)
    operations = list(dict.fromkeys(operation for operation, *_ in groups))
    drawn = []
    for operation, state, blob in sorted(groups, key=lambda group: (operations.index(group[0]), *group[1:])):
        drawn.append(_bars_of(results, (operation, order[state], blob), groups[operation, state, blob]))
    return Section("Beside the ceilings", [Text(_HOW_TO_READ), *drawn])


def _bars_of(results: Results, group: tuple[str, str, str], cases: Sequence[Results]) -> Plot:
    operation, state, blob = group
    shown = _fastest(cases) if len(cases) > _MOST_BARS else cases
    note = _STATES[state]
    if len(shown) < len(cases):
        note += f" The fastest setting of each kind, of {len(cases)} cases."
    named = {case["ceiling"] for case in cases}
    if len(named) == 1 and named != {None}:
        (bound,) = named
        note += f" Ceiling: {ceiling_name(bound)}, {format_rate(_bounds(results)[bound])} GB/s."
    what = {"hydrate": "Restores", "capture": "Captures", "load": "Loads"}.get(operation, operation)
    title = ", ".join(part for part in (what, state, blob) if part)
    name = "-".join(part for part in group if part)
    return plots.bars(name, title, note, "GB/s", [_bar(results, case, len(named) > 1) for case in shown])


def _bounds(results: Results) -> dict[str, float]:
    return {each["name"]: each["median"] for each in results["ceilings"]}


def _fastest(cases: Sequence[Results]) -> list[Results]:
    """The fastest case of each kind."""
    found: dict[Any, Results] = {}
    for case in cases:
        kind = kind_of(case)
        found[kind] = max(found.get(kind, case), case, key=lambda each: each["bytes_per_second"])
    return list(found.values())


def _bar(results: Results, case: Results, named: bool) -> plots.Bar:
    """The bar of a case; ``named`` says whether it has to name its ceiling."""
    bound, share = None, ""
    if case["ceiling"] is not None:
        rate = _bounds(results)[case["ceiling"]]
        bound, share = rate / 1e9, f"{case['ratio'] * 100:.0f} %"
        share += f" of {ceiling_name(case['ceiling'])}, {format_rate(rate)}" if named else ""
    samples = [payload_of(results, case) / seconds / 1e9 for seconds in case["samples_s"]]
    if not samples:
        raise ValueError(f"the case {label_of(case)} has no samples")
    rate = case["bytes_per_second"]
    colour = theme.OF_NAME.get(name_of(case), theme.OTHER)
    said = f"{format_rate(rate)} GB/s"
    return plots.Bar(label_of(case), setting_of(case), rate / 1e9, said, samples, colour, bound, share)


def sweeps(results: Results) -> list[Section]:
    """A heat map of each kind of case that was run, or tried on the way, with several chunks and several depths."""
    trials = list(results.get("trials") or ())
    groups: dict[Any, list[Results]] = {}
    for case in results["cases"]:
        if "chunk_bytes" in case:
            groups.setdefault((*kind_of(case), blob_of(results, case)), []).append(case)
    for trial in trials:  # of the results' own blob, if not always of all of it
        groups.setdefault((*kind_of(trial), ""), []).append(trial)
    maps = []
    for group, cases in groups.items():
        pairs = {(case["chunk_bytes"], case["queue_depth"]) for case in cases}
        lines = [len(set(values)) for values in zip(*pairs, strict=True)]
        if min(lines) > 1 and len(pairs) > max(lines):  # a few settings side by side are no grid
            tried = [trial for trial in trials if any(case is trial for case in cases)]
            maps.append(_heat_map(group, cases, _of_trials(results, tried)))
    said = "Each cell has the fastest number of threads, which stands below the rate. The colour counts from zero."
    return [Section("Chunk and depth", [Text(said), *maps])] if maps else []


def _of_trials(results: Results, trials: Sequence[Results]) -> str:
    if not trials:
        return ""
    part = sum(payload_of(results, trial) != results["payload_bytes"] for trial in trials)
    some = f", {part} of them over a part of the file" if part else ""
    return f" {len(trials)} of them are trials of a search, with few samples{some}."


def _heat_map(group: Sequence[str], cases: Sequence[Results], of_trials: str) -> Plot:
    fastest: dict[tuple[int, int], Results] = {}
    for case in cases:
        at = (case["chunk_bytes"], case["queue_depth"])
        fastest[at] = max(fastest.get(at, case), case, key=lambda each: each["bytes_per_second"])
    chunks, depths = ([*sorted(set(values))] for values in zip(*fastest, strict=True))
    cells = []
    for (chunk, depth), case in fastest.items():
        rate = case["bytes_per_second"]
        cells.append(plots.Cell(str(depth), format_size(chunk), rate, format_rate(rate), f"{case['threads']} thr"))
    operation, _, state, *_, blob = group
    what = "" if operation == "hydrate" else f"{operation} by "
    title = f"{what}{', '.join(part for part in (label_of(cases[0]), state, blob) if part)}: GB/s"
    columns = plots.Ladder("depth", [str(depth) for depth in depths])
    rows = plots.Ladder("chunk", [format_size(chunk) for chunk in chunks])
    return plots.heat_map(
        "-".join(part for part in ("sweep", *group) if part),
        title,
        f"{len(cases)} cases.{of_trials}",
        columns,
        rows,
        cells,
    )
