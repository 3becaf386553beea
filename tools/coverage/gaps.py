"""What a coverage run keeps, and whether each stretch of lines that no test reaches is explained.

A gap is known by its file, its function and the text of its first line, never by a line number: the explanation of a
gap outlives every edit but one of the gap itself.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Sequence

# Where every gap has a test or a reason: the rooms that a weight passes on its way into an artifact and out of it.
ROOMS = ("cc/artifact", "cc/file", "cc/ring", "cc/publish", "cc/capture", "cc/hydrate")
MEASURED = "tools/coverage/measured.json"
EXPLAINED = "tools/coverage/explained.json"
PAGE = "docs/coverage.md"
COMMAND = "./bazelw run //tools/coverage"


@dataclasses.dataclass(frozen=True, order=True)
class Gap:
    """A stretch of lines that no test reaches; equal first lines of one function are one gap."""

    file: str
    function: str
    text: str  # of its first line

    def __str__(self) -> str:
        return f"{self.file}: {self.function}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Count:
    """Lines with code in them, and those of them that ran."""

    lines: int = 0
    covered: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.lines + other.lines, self.covered + other.covered)


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run: a count for each folder of each language, and the lines in each gap of `ROOMS`."""

    cpp: dict[str, Count]
    python: dict[str, Count]
    gaps: dict[Gap, int]


@dataclasses.dataclass(frozen=True)
class Explained:
    """Written by hand: what a run doesn't see of a folder, and the reason for each gap."""

    folders: dict[str, str]
    gaps: dict[Gap, str]
    sometimes: frozenset[Gap] = frozenset()  # of them, those that a run may reach: by chance, or on another machine


def read_measured(text: str) -> Measured:
    """The inverse of `measured_text`."""
    kept = json.loads(text)
    counts = {name: {folder: Count(*pair) for folder, pair in kept[name].items()} for name in ("cpp", "python")}
    gaps = {Gap(row["file"], row["function"], row["text"]): row["lines"] for row in kept["gaps"]}
    return Measured(counts["cpp"], counts["python"], gaps)


def measured_text(measured: Measured) -> str:
    """A run as JSON, a folder or a gap on a line."""
    kept = {
        name: {folder: [count.lines, count.covered] for folder, count in sorted(counts.items())}
        for name, counts in (("cpp", measured.cpp), ("python", measured.python))
    }
    rows = [{**dataclasses.asdict(gap), "lines": lines} for gap, lines in sorted(measured.gaps.items())]
    parts = [f' "{name}": {{\n{_one_a_line(counts)}\n }}' for name, counts in kept.items()]
    parts.append(' "gaps": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _one_a_line(counts: dict[str, list[int]]) -> str:
    return ",\n".join(f"  {json.dumps(folder)}: {json.dumps(pair)}" for folder, pair in counts.items())


def read_explained(text: str) -> Explained:
    """What `EXPLAINED` says.

    Raises:
        ValueError: A gap is explained twice, or without a word.
    """
    kept = json.loads(text)
    gaps: dict[Gap, str] = {}
    sometimes = set()
    for row in kept["gaps"]:
        gap = Gap(row["file"], row["function"], row["text"])
        if gap in gaps or not row["reason"].strip():
            raise ValueError(f"read {EXPLAINED}: {gap}: {'explained twice' if gap in gaps else 'the reason is empty'}")
        gaps[gap] = row["reason"]
        if row.get("sometimes", False):
            sometimes.add(gap)
    return Explained(kept["folders"], gaps, frozenset(sometimes))


def problems(measured: Measured, explained: Explained) -> list[str]:
    """One message for each gap without a reason and each reason without a gap."""
    bare = sorted(measured.gaps.keys() - explained.gaps.keys())
    idle = sorted(explained.gaps.keys() - measured.gaps.keys() - explained.sometimes)
    return [
        f"{gap}: reached by no test; remedy: write one, or say in {EXPLAINED} why there is none" for gap in bare
    ] + [f"{gap}: explained, and not a gap (any more); remedy: take it out of {EXPLAINED}" for gap in idle]


def misplaced(gaps: Iterable[Gap], top: pathlib.Path) -> list[str]:
    """One message for each gap whose file, function or text isn't in the work tree at ``top``."""
    said = []
    for gap in sorted(gaps):
        path = top / gap.file
        if not path.is_file():
            said.append(f"{gap}: the file is gone")
            continue
        text = path.read_text(encoding="utf-8")
        name = gap.function.rpartition("::")[2]
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            said.append(f"{gap}: the file has no {name}")
        if gap.text not in (line.strip() for line in text.splitlines()):
            said.append(f"{gap}: the file has no such line")
    return said


def leaves_out(options: Sequence[str]) -> bool:
    """Whether options of ``bazel test`` choose among the tests: what comes out is no page then."""
    return any("_filter" in option.partition("=")[0] or not option.startswith("-") for option in options)
