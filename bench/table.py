"""Writes the tables of measured numbers in the README and in bench/results from results files: none is typed by hand.

A table stands between two markers, the first of which names its results file from the top of the repository:

    <!-- measured: bench/results/NAME.json -->
    <!-- /measured -->

`bazel run //bench:table` rewrites what is between them; with --check it only compares. The table of
bench/results/index.json lists the files beside it.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from coldsnap import errors
from coldsnap._bench import flagset
from coldsnap._bench.sizes import format_rate, format_size

PAGES = ("README.md", "bench/results/README.md")
_SAMPLES = ("samples_s", "engine_s", "ready_s")  # of a calibration, of engine loads, of a start-up matrix
_RESTORE = "restore"
_PLACES = {"device": "on the device", "both": "on host and device"}
_BLOCK = re.compile(r"(<!-- measured: (?P<name>[^\n>]+?) -->\n)(?P<table>.*?)(<!-- /measured -->)", re.DOTALL)


def main(argv: Sequence[str]) -> int:
    """Rewrite or check the tables.

    Args:
        argv: The program's name, then the flags.
    Returns:
        0; 1 if --check found an old table; 2 for a wrong flag, a missing file or a page without markers.
    """
    values = flags.FlagValues()
    flags.DEFINE_list("pages", list(PAGES), "the files with the markers, from the top", flag_values=values)
    flags.DEFINE_string("root", None, "top of the repository (the one bazel runs in)", flag_values=values)
    flags.DEFINE_boolean("check", False, "compare only", flag_values=values)
    usage = f"{__doc__}\nexamples:\n  bazel run //bench:table\n  bazel run //bench:table -- --check"
    return flagset.run(values, argv, usage, lambda: _rewrite_files(values))


def _rewrite_files(values: flags.FlagValues) -> int:
    if values["root"].value is not None:
        root = flagset.user_path("root", values["root"].value)
    else:
        root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or os.getcwd())
    # All of them, so that each old page is named.
    return max(_rewrite_file(root, name, values["check"].value) for name in values["pages"].value)


def _rewrite_file(root: Path, name: str, check: bool) -> int:
    old = _read(root / name)
    new, count = rewrite(old, root)
    if not count:
        raise errors.RequestInvalidError(
            f"make the tables of {name}: it has no marker",
            remedy="put <!-- measured: bench/results/NAME.json --> and <!-- /measured --> around the place",
        )
    if old == new:
        print(f"{name}: {count} tables, all up to date")
        return 0
    if check:
        print(f"table: {name} differs from its results; run: bazel run //bench:table", file=sys.stderr)
        return 1
    (root / name).write_text(new, encoding="utf-8")
    print(f"{name}: {count} tables, rewritten")
    return 0


def rewrite(text: str, root: Path) -> tuple[str, int]:
    """Put the tables between the markers of `text`; give the new text and how many tables it has.

    Raises:
        RequestInvalidError: A results file is missing or is not one.
    """
    count = 0

    def fill(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return match[1] + _table_of(root / match["name"], match["name"]) + match[4]

    return _BLOCK.sub(fill, text), count


def table(results: dict[str, Any]) -> str:
    """Make the Markdown of one results file: a line for machine and run, a row per case."""
    if "capture_start" in results:
        return _starts(results)
    if "cells" in results:
        return _matrix(results)
    return _rounds(results) if "rows" in results else _cases(results)


def _cases(results: dict[str, Any]) -> str:
    """Of a calibration. What a case does is said only where not every case restores the whole blob: pages are narrow."""
    whats = [_what(case, results) for case in results["cases"]]
    titles = ["route", "cache", "digest", "chunk x depth, threads", "GB/s", "of its ceiling", "limited by"]
    rows = [_row(case, results) for case in results["cases"]]
    if set(whats) != {_RESTORE}:
        titles, rows = ["what", *titles], [[what, *row] for what, row in zip(whats, rows, strict=True)]
    count = max(len(case["samples_s"]) for case in results["cases"])
    extents = (results.get("request") or {}).get("extents")
    payload = f"{format_size(results['payload_bytes'])}{f' in {extents:,} extents' if extents else ''}"
    head = f"{_machine(results)}; payload {payload}, commit {_short(results['commit'])}, {_samples(count)}."
    return _markdown(head, titles, rows)


def _what(case: dict[str, Any], results: dict[str, Any]) -> str:
    words = case["operation"] if case["operation"] == "capture" else _RESTORE
    nbytes = case.get("payload_bytes", results["payload_bytes"])  # files of before have none
    return (
        words
        if nbytes == results["payload_bytes"]
        else f"{words}, {case['extents']:,} extents of {format_size(nbytes)}"
    )


def _row(case: dict[str, Any], results: dict[str, Any]) -> list[str]:
    setting = f"{format_size(case['chunk_bytes'])} x {case['queue_depth']}, {case['threads']}"
    bound = "-"
    if case["ratio"] is not None:
        rate = next(each["median"] for each in results["ceilings"] if each["name"] == case["ceiling"])
        bound = (
            f"{case['ratio'] * 100:.0f} % of {format_rate(rate)} ({case['ceiling'].split('.')[0].replace('_', ' ')})"
        )
    digest = case["digest"] if case["place"] == "host" else f"{case['digest']}, {_PLACES[case['place']]}"
    rate = format_rate(case["bytes_per_second"])
    return [case["route"], case["cache"], digest, setting, rate, bound, case["limiting_stage"]]


def _rounds(results: dict[str, Any]) -> str:
    """Of `//bench/micro:capture_bench`: plain direct writes and captures in turns, so a row is one block and depth."""
    nbytes = results["payload_bytes"]
    count = len(results["rows"][0]["plain_s"])
    head = f"{_machine(results)}; payload {format_size(nbytes)}, commit {_short(results['commit'])}, medians of {count} rounds."
    rows = []
    for row in results["rows"]:
        plain, host, device = (
            statistics.median(row[f"{name}_s"]) for name in ("plain", "capture_host", "capture_device")
        )
        captures = [f"{format_rate(nbytes / took)}, {plain / took * 100:.0f} %" for took in (host, device)]
        rows.append([f"{format_size(row['block_bytes'])} x {row['in_flight']}", format_rate(nbytes / plain), *captures])
    titles = ["block x in flight", "plain writes, GB/s"]
    titles += [f"capture, digests on the {place}: GB/s, of plain" for place in ("host", "device")]
    return _markdown(head, titles, rows)


def _markdown(head: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, "", *(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows))]
    return "\n".join(lines) + "\n"


def _starts(results: dict[str, Any]) -> str:
    """Of `bench/engine_loads.py`: what the engine logs of reading weights, or coldsnap's receipt says of restoring them."""
    head = (
        f"{_machine(results)}; vLLM {results['machine']['versions']['vllm']}, weights "
        f"{format_size(results['payload_bytes'])}, commit {_short(results['commit'])}, means of the starts."
    )
    rows = []
    for case in results["cases"]:
        weights = case["restore_s"] if case["load_format"] == "coldsnap" else case["weights_s"]
        seconds = [_mean(samples) for samples in (weights, case["loading_s"], case["engine_s"])]
        rows.append([case["load_format"], case["cache"], *seconds, str(len(case["engine_s"]))])
    titles = ["load format", "cache", "weights, s", "model loading, s", "whole engine, s", "starts"]
    return _markdown(head, titles, rows)


def _matrix(results: dict[str, Any]) -> str:
    """Of `bench/vllm_startup_matrix.py`: seconds from the spawn until a start was ready, by topology."""
    count = max(len(cell["ready_s"]) for cell in results["cells"])
    versions = results["machine"]["versions"]
    head = f"{_machine(results)}; vLLM {versions['vllm']}, commit {_short(results['commit'])}, {_samples(count)}."
    rows = []
    for cell in results["cells"]:
        where = [cell[name] for name in ("case", "load_format", "caches", "pages")]
        weights = [each for each in cell["phases_s"]["weights"] if each is not None]
        rows.append([*where, *map(_median, (weights, cell["ready_s"], cell["first_token_s"]))])
    titles = ["case", "load format", "engine caches", "page cache", "weights, s", "ready, s", "first token, s"]
    return _markdown(head, titles, rows)


def _samples(count: int) -> str:
    return f"medians of {count}" if count > 1 else "one sample each"


def _median(samples: list[float]) -> str:
    return f"{statistics.median(samples):.2f}" if samples else "-"


def _mean(samples: list[float | None]) -> str:
    known = [sample for sample in samples if sample is not None]
    return f"{statistics.fmean(known):.2f}" if known else "-"


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    gpu = machine["gpu"]["name"] if machine["gpu"] else "no GPU (host memory)"
    facts = [gpu, f"{machine['cores']} cores of {machine['cpu']}", format_size(machine["memory_bytes"])]
    return ", ".join([*facts, str(machine["file_system"]), f"Linux {machine['kernel']}"])


def index(files: list[dict[str, str]], folder: Path) -> str:
    """Make the Markdown of an index: a row for each file, its facts from the file and what was run from the index."""
    lines = [
        "| file | kind | payload | cases | samples of each | commit | machine and run |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in files:
        document = json.loads(_read(folder / each["file"]))
        payload = format_size(document["payload_bytes"]) if "payload_bytes" in document else "-"
        cases = document.get("cases", document.get("cells", []))
        counts = sorted({len(case[name]) for case in cases for name in _SAMPLES if name in case})
        samples = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "-"
        cells = [payload, str(len(cases) or "-"), samples, _short(document.get("commit", "-")), each["note"]]
        lines.append(f"| [{each['file']}]({each['file']}) | {each['kind']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table_of(path: Path, name: str) -> str:
    try:
        document = json.loads(_read(path))
        return index(document["files"], path.parent) if "files" in document else table(document)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, errors.Error):
            raise
        raise errors.RequestInvalidError(
            f"make a table from {name}: it is no results.json ({type(error).__name__}: {error})",
            remedy="write it with bazel run //bench:calibrate -- --output=DIR",
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.RequestInvalidError(f"read {path.name}: {error.strerror}", remedy="see --help") from error


def _short(commit: str) -> str:
    head, dash, rest = commit.partition("-")
    return head[:12] + dash + rest


if __name__ == "__main__":
    sys.exit(main(sys.argv))
