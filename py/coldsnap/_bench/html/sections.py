"""What a results.json has to show, as sections of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap._bench import traces
from coldsnap._bench.html import plots, spans, theme
from coldsnap._bench.html.canvas import Plot
from coldsnap._bench.html.page import Facts, Section, Table, Text
from coldsnap._bench.sizes import format_rate, format_size

Results = Mapping[str, Any]
_STATES = {
    "cold": "Nothing of the file was in the page cache, so the drive decides.",
    "half": "Every other part of the file was in the page cache; no ceiling bounds that.",
    "warm": "The whole file was in the page cache. Direct reads pass it by: the drive bounds them.",
    "mixed": "Some of the file was in the page cache, so this is neither cold nor warm.",
}
_MOST_BARS = 16  # more are no picture; a sweep has hundreds
_WHERE = {"host": "", "device": " on device", "both": " on both"}


def of_results(results: Results, trace: Any) -> list[Section]:
    """The sections of a results.json.

    Args:
        results: As `results.results_of` makes it, with ``loader`` in the place of ``route`` as of ``//bench:peers``; with
            ``comparison`` where it was compared with an earlier run.
        trace: Of `coldsnap calibrate --trace`, or None.
    Raises:
        LookupError, TypeError, ValueError, AttributeError, ArithmeticError: It is none.
        RequestInvalidError: The trace is none.
    """
    found = [machine(results), rates(results), *_sweep(results)]
    if trace is not None:
        found.append(timelines(trace))
    if results.get("comparison"):
        found.append(comparison(results["comparison"]))
    return [*found, cases_table(results), ceilings_table(results), words()]


def machine(results: Results) -> Section:
    """What was measured, and on what."""
    about = results["machine"]
    drive = about.get("drive") or {}
    gpu = about["gpu"]
    # A virtual drive says what it likes of itself, so only its name and its model are told.
    on_drive = " ".join(str(drive[key]) for key in ("name", "model") if drive.get(key))
    facts = [
        ("GPU", f"{gpu['name']}, driver {gpu['driver']}" if gpu else "none: host memory stood in"),
        ("processor", f"{about['cores']} cores of {about['cpu']}, {about['architecture']}"),
        ("memory", format_size(about["memory_bytes"])),
        ("system", f"Linux {about['kernel']}, Python {about['python']}"),
        ("drive", f"{about['file_system']} on {on_drive or 'a drive that is not known'}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in about["versions"].items())),
        ("commit", str(results["commit"])),
        ("payload", f"{format_size(results['payload_bytes'])} of random bytes, seed {results['seed']}"),
    ]
    return Section("The machine", [Facts(facts)])


def rates(results: Results) -> Section:
    """The cases beside their ceilings: a plot for each operation and each state of the page cache."""
    drawn = []
    for operation in dict.fromkeys(case["operation"] for case in results["cases"]):
        for state in _STATES:
            cases = [case for case in results["cases"] if (case["cache"], case["operation"]) == (state, operation)]
            if cases:
                drawn.append(_bars_of(results, operation, state, cases))
    return Section("Beside the ceilings", [Text(_HOW_TO_READ), *drawn])


_HOW_TO_READ = (
    "A bar is the median of its samples, and each dot is a sample. The dashed line is the ceiling that bounds the case: "
    "what drive, memory or link reached in the same minutes."
)


def _bars_of(results: Results, operation: str, state: str, cases: Sequence[Results]) -> Plot:
    rows = _rows(results, cases)
    what = {"hydrate": "restores", "capture": "captures", "load": "loads"}.get(operation, operation)
    note = _STATES[state]
    if len(rows) < len(cases):
        note += f" The fastest setting of each kind, of {len(cases)} cases."
    bounds = {case["ceiling"] for case in cases}
    if len(bounds) == 1 and bounds != {None}:
        (bound,) = bounds
        note += f" Ceiling: {ceiling_name(bound)}, {format_rate(_bounds(results)[bound])} GB/s."
    return plots.bars(f"{operation}-{state}", f"{what.capitalize()}, {state}", note, "GB/s", rows)


def _bounds(results: Results) -> dict[str, float]:
    return {each["name"]: each["median"] for each in results["ceilings"]}


def _rows(results: Results, cases: Sequence[Results]) -> list[plots.Bar]:
    named = len({case["ceiling"] for case in cases}) > 1
    if len(cases) <= _MOST_BARS:
        return [_row(results, case, named) for case in cases]
    fastest: dict[tuple[Any, ...], Results] = {}
    for case in cases:
        before = fastest.setdefault(_kind(case), case)
        fastest[_kind(case)] = max(before, case, key=lambda each: each["bytes_per_second"])
    return [_row(results, case, named) for case in fastest.values()]


def _row(results: Results, case: Results, named: bool) -> plots.Bar:
    """The bar of a case; ``named`` says whether it has to name its ceiling."""
    bound, share = None, ""
    if case["ceiling"] is not None:
        rate = _bounds(results)[case["ceiling"]]
        bound, share = rate / 1e9, f"{case['ratio'] * 100:.0f} %"
        share += f" of {ceiling_name(case['ceiling'])}, {format_rate(rate)}" if named else ""
    samples = [results["payload_bytes"] / seconds / 1e9 for seconds in case["samples_s"]]
    if not samples:
        raise ValueError(f"the case {label(case)} has no samples")
    rate = case["bytes_per_second"]
    colour = theme.OF_NAME.get(_name(case), theme.OTHER)
    said = f"{format_rate(rate)} GB/s"
    return plots.Bar(label(case), setting(case), rate / 1e9, said, samples, colour, bound, share)


def _kind(case: Results) -> tuple[Any, ...]:
    """What tells a case from another, its setting aside."""
    return (case["operation"], _name(case), case["cache"], case.get("digest"), case.get("place"))


def _name(case: Results) -> str:
    return str(case.get("route") or case["loader"])


def label(case: Results) -> str:
    """A case in words: its route, and the digests that it compares."""
    digest = case.get("digest")
    return _name(case) + (f", {digest}{_WHERE[case['place']] if digest != 'none' else ''}" if digest else "")


def setting(case: Results) -> str:
    """How a case was run."""
    if "chunk_bytes" not in case:
        return str(case["how"])
    return f"{format_size(case['chunk_bytes'])} x {case['queue_depth']}, {_threads(case['threads'])}"


def _threads(count: int) -> str:
    return f"{count} thread" + ("s" if count != 1 else "")


def ceiling_name(name: str) -> str:
    """A ceiling's name in words: ``raw_direct_read.t4`` is a raw direct read by 4 threads."""
    return name.partition(".")[0].replace("_", " ")


def _sweep(results: Results) -> list[Section]:
    """A heat map of each kind of case that was run with several chunks and several depths."""
    maps = []
    for kind in dict.fromkeys(_kind(case) for case in results["cases"] if "chunk_bytes" in case):
        cases = [case for case in results["cases"] if _kind(case) == kind]
        pairs = {(case["chunk_bytes"], case["queue_depth"]) for case in cases}
        lines = [len(set(values)) for values in zip(*pairs, strict=True)]
        if min(lines) > 1 and len(pairs) > max(lines):  # a few settings side by side are no grid
            maps.append(_heat_map(kind, cases))
    said = "Each cell has the fastest number of threads, which stands below the rate. The colour counts from zero."
    return [Section("Chunk and depth", [Text(said), *maps])] if maps else []


def _heat_map(kind: tuple[Any, ...], cases: Sequence[Results]) -> Plot:
    fastest: dict[tuple[int, int], Results] = {}
    for case in cases:
        at = (case["chunk_bytes"], case["queue_depth"])
        fastest[at] = max(fastest.get(at, case), case, key=lambda each: each["bytes_per_second"])
    chunks, depths = ([*sorted(set(values))] for values in zip(*fastest, strict=True))
    cells = []
    for (chunk, depth), case in fastest.items():
        rate = case["bytes_per_second"]
        cells.append(plots.Cell(str(depth), format_size(chunk), rate, format_rate(rate), f"{case['threads']} thr"))
    name = "-".join(str(part) for part in ("sweep", *kind) if part)
    columns = plots.Ladder("depth", [str(depth) for depth in depths])
    rows = plots.Ladder("chunk", [format_size(chunk) for chunk in chunks])
    return plots.heat_map(name, f"{label(cases[0])}, {kind[2]}: GB/s", f"{len(cases)} cases.", columns, rows, cells)


def timelines(trace: Any) -> Section:
    """What the threads of each restore of a trace did."""
    restores = traces.restores_of(trace)
    said = (
        "What the threads did, from the choice of the route to the hand-over, up to eight threads of each kind. What is "
        "shorter than a screen shows is drawn as a hair."
    )
    drawn = [
        spans.timeline(f"timeline-{number}-{each.route}", f"Restore by {each.route}", each)
        for number, each in enumerate(restores, 1)
    ]
    return Section("Timeline", [Text(said), *drawn])


def comparison(rows: Sequence[Results]) -> Section:
    """The verdicts against an earlier run."""
    cells = [
        [str(row["case"]), str(row["verdict"]), *(_ratio(row[key]) for key in ("ratio", "low", "high"))] for row in rows
    ]
    titles = ("case", "verdict", "ratio", "low", "high")
    said = "Ratio: the rate of this run to that of the earlier one, with the interval that the samples allow."
    return Section("Against an earlier run", [Text(said), Table(titles, cells, titles[2:])])


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def cases_table(results: Results) -> Section:
    """Every case, with every sample."""
    titles = ("case", "cache", "setting", "GB/s", "median, ms", "% of ceiling", "ceiling", "limited by", "samples, ms")
    rows = []
    for case in results["cases"]:
        numbers = [format_rate(case["bytes_per_second"]), _ms(case["median_s"])]
        numbers.append("-" if case["ratio"] is None else f"{case['ratio'] * 100:.1f}")
        bound = [case["ceiling"] or "-", case.get("limiting_stage") or "-"]
        samples = " ".join(map(_ms, case["samples_s"]))
        rows.append([label(case), case["cache"], setting(case), *numbers, *bound, samples])
    return Section("All cases", [Table(titles, rows, ("GB/s", "median, ms", "% of ceiling"))])


def _ms(seconds: float) -> str:
    """Seconds as milliseconds, to the microsecond as results.json has them."""
    return f"{seconds * 1e3:.3f}"


def ceilings_table(results: Results) -> Section:
    """Every ceiling, with every sample; what is in seconds has a table of its own."""
    parts = []
    for unit, title, factor in (("bytes_per_second", "GB/s", 1e9), ("seconds", "ms", 1e-3)):
        of_unit = [each for each in results["ceilings"] if each["unit"] == unit]
        titles = ("what", f"median, {title}", "lowest", "highest", f"samples, {title}")
        rows = []
        for each in of_unit:
            values = [each["median"], min(each["samples"]), max(each["samples"])]
            samples = " ".join(f"{sample / factor:.3f}" for sample in each["samples"])
            rows.append([each["name"], *(f"{value / factor:.3f}" for value in values), samples])
        if rows:
            parts.append(Table(titles, rows, titles[1:4]))
    return Section("Ceilings", parts)


def words() -> Section:
    """What the words mean, for a reader who has only the page."""
    return Section(
        "What the words mean",
        [
            Facts(
                [
                    ("GB/s", "10^9 bytes of payload per second; MiB and GiB are powers of two"),
                    ("ceiling", "what drive, memory or link reached in the same minutes, without coldsnap's restore"),
                    ("x", "chunk x depth: the size of a slot, and how many slots there are"),
                    ("cold, warm", "at most 0.1 %, at least 99.9 % of the file was in the page cache before a sample"),
                    (
                        "limited by",
                        "the stage that took longest in most samples; stages overlap, and one of them always does",
                    ),
                ]
            )
        ],
    )
