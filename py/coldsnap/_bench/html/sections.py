"""What a results.json has to show, as sections of a page."""

from __future__ import annotations

from typing import Any

from coldsnap._bench import traces
from coldsnap._bench.html import rates, spans
from coldsnap._bench.html.page import Facts, Part, Section, Table, Text
from coldsnap._bench.html.wording import Results, case_of, label_of, setting_of
from coldsnap._bench.sizes import format_rate, format_size


def of_results(results: Results, trace: Any) -> list[Section]:
    """The sections of a results.json.

    Args:
        results: As a calibration writes it, or with ``loader`` in the place of ``route`` as of ``//bench:peers``.
        trace: Of ``coldsnap calibrate --trace``, or None.
    Raises:
        LookupError, TypeError, ValueError, AttributeError, ArithmeticError: It is none.
        RequestInvalidError: The trace is none.
    """
    found = [
        *left_out(results),
        machine(results),
        *recommendation(results),
        rates.bars(results),
        *rates.sweeps(results),
    ]
    if trace is not None:
        found.append(timelines(trace))
    return [*found, *comparison(results), cases_table(results), ceilings_table(results), words()]


def left_out(results: Results) -> list[Section]:
    """What a reader has to know before anything else: that the run was interrupted, or had no time for everything."""
    parts: list[Part] = []
    if results.get("complete") is False:
        missing = ", ".join(map(str, results.get("missing") or ())) or "nothing is noted"
        parts.append(Text(f"The run was interrupted. Too few samples: {missing}."))
    if results.get("left_out"):
        parts.append(Text(f"There was no time for: {'; '.join(map(str, results['left_out']))}."))
    return [Section("What is missing", parts)] if parts else []


def machine(results: Results) -> Section:
    """What was measured, and on what."""
    about = results["machine"]
    drive = about.get("drive") or {}
    gpu = about["gpu"]
    content = results.get("content") or f"random bytes, seed {results['seed']}"
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
        ("payload", f"{format_size(results['payload_bytes'])}, {content}"),
    ]
    return Section("The machine", [Facts(facts)])


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


def recommendation(results: Results) -> list[Section]:
    """What the calibration advises, and why."""
    rows = []
    for each in results.get("recommendation") or ():
        numbers = [setting_of(each), format_rate(each["bytes_per_second"]), each["why"]]
        rows.append([f"{_DOING.get(each['operation'], each['operation'])}, {each['cache']}", label_of(each), *numbers])
    titles = ("for", "route", "setting", "GB/s", "why")
    return [Section("What is best here", [Table(titles, rows, ("GB/s",))])] if rows else []


_DOING = {"hydrate": "restore", "load": "load", "capture": "capture"}


def comparison(results: Results) -> list[Section]:
    """The verdicts against an earlier run."""
    titles = ("case", "verdict", "ratio", "low", "high", "why")
    rows = []
    for row in results.get("comparison") or ():
        ratios = [_ratio(row[key]) for key in titles[2:5]]
        rows.append([str(row["case"]), str(row["verdict"]), *ratios, str(row.get("why") or "")])
    said = (
        "Ratio: the rate of this run to that of the earlier one, and between what it lies as far as the samples tell."
    )
    return [Section("Against an earlier run", [Text(said), Table(titles, rows, titles[2:5])])] if rows else []


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def cases_table(results: Results) -> Section:
    """Every case, with every sample; what a narrow page shows first stands first."""
    titles = ("case", "cache", "GB/s", "% of ceiling", "median, ms", "setting", "ceiling", "limited by", "samples, ms")
    rows = []
    for case in results["cases"]:
        share = "-" if case["ratio"] is None else f"{case['ratio'] * 100:.1f}"
        numbers = [format_rate(case["bytes_per_second"]), share, _ms(case["median_s"])]
        bound = [case["ceiling"] or "-", case.get("limiting_stage") or "-"]
        samples = " ".join(map(_ms, case["samples_s"]))
        rows.append([case_of(results, case), case["cache"], *numbers, setting_of(case), *bound, samples])
    return Section("All cases", [Table(titles, rows, titles[2:5])])


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
