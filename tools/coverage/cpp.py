"""C++ lines that ran, from the notes that gcc leaves beside each object and the counts that each program adds to them."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

from tools.coverage.gaps import Gap

FOLDERS = ("cc", "py/coldsnap/_native")
# Sources of tests, and what only they use.
_OF_TESTS = re.compile(r"_test\.(cc|c|h)$|_for_test\.h$|^cc/testing/|/fake_\w+\.h$|/fixture\.(cc|h)$")
_BATCH = 40  # objects for one gcov


@dataclasses.dataclass
class SourceLines:
    """Of one source: how often each line with code ran, and the function it belongs to."""

    ran: dict[int, int] = dataclasses.field(default_factory=lambda: collections.defaultdict(int))
    functions: dict[int, str] = dataclasses.field(default_factory=dict)


def forget(bazel_bin: pathlib.Path) -> None:
    """Removes the counts of earlier runs: gcov would add to them."""
    for path in _below(bazel_bin, "*.gcda"):
        path.unlink()


def variables(bazel_bin: pathlib.Path) -> dict[str, str]:
    """What makes a test leave its counts beside the notes, wherever it runs.

    Bazel compiles in /proc/self/cwd, which the compiler takes for the place: those three folders are cut off.
    """
    return {"GCOV_PREFIX": str(bazel_bin.parents[2]), "GCOV_PREFIX_STRIP": "3"}


def read(bazel_bin: pathlib.Path, top: pathlib.Path) -> dict[str, SourceLines]:
    """The lines of each source of ours that was compiled, by its path below ``top``.

    Raises:
        RuntimeError: gcov failed, no program left a count, or a source was compiled and left no notes.
    """
    notes = _below(bazel_bin, "*.gcno")
    if not _below(bazel_bin, "*.gcda"):
        raise RuntimeError(
            f"read counts below {bazel_bin}: no program left any; remedy: see the tests' own words above"
        )
    # A cache gives back objects without the notes, which Bazel does not know of. A kernel's object has no list of headers.
    bare = [path for path in _below(bazel_bin, "*.pic.d") if not path.with_suffix(".gcno").is_file()]
    if bare:
        raise RuntimeError(
            f"read notes of {len(bare)} objects, the first {bare[0]}: not there;"
            " remedy: remove the output folder of --config=coverage and build without --disk_cache and --remote_cache"
        )
    found: dict[str, SourceLines] = collections.defaultdict(SourceLines)
    for start in range(0, len(notes), _BATCH):
        for each in _gcov(notes[start : start + _BATCH]):
            _add(each, top, found)
    return dict(found)


def _below(bazel_bin: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    return sorted(path for folder in FOLDERS for path in (bazel_bin / folder).rglob(pattern))


def _gcov(notes: list[pathlib.Path]) -> Iterator[dict]:
    """What gcov says of these objects, a document each."""
    command = ["gcov", "--json-format", "--stdout", *map(str, notes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gcov of {len(notes)} objects from {notes[0]}: ended with {done.returncode}\n{done.stderr}")
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _add(document: dict, top: pathlib.Path, found: dict[str, SourceLines]) -> None:
    for file in document["files"]:
        name = file["file"]
        if not name.startswith(FOLDERS) or _OF_TESTS.search(name) or not (top / name).is_file():
            continue
        functions = {each["name"]: function_name(each["demangled_name"]) for each in file["functions"]}
        source = found[name]
        for line in file["lines"]:
            number = line["line_number"]
            source.ran[number] += line["count"]
            function = functions.get(line.get("function_name", "")) or _around(number, file["functions"])
            if function:
                source.functions.setdefault(number, function)


def _around(number: int, functions: list[dict]) -> str:
    """The innermost function around a line of which gcov doesn't say it: one that was never called, or only inlined."""
    around = [each for each in functions if each["start_line"] <= number <= each["end_line"]]
    return function_name(max(around, key=lambda each: each["start_line"])["demangled_name"]) if around else ""


def function_name(demangled: str) -> str:
    """``Class::Function`` of what the compiler calls it; code of a lambda belongs to the function around it."""
    name = demangled.replace("(anonymous namespace)::", "").replace("[abi:cxx11]", "")
    shorter = re.sub(r"<[^<>]*>", "", name)
    while shorter != name:
        name, shorter = shorter, re.sub(r"<[^<>]*>", "", shorter)
    name = re.sub(r"^decltype \((?:[^()]|\(\))*\) ", "", name)
    name = name.partition("(")[0].partition("::{")[0]
    return name.rpartition(" ")[2].removeprefix("coldsnap::") or demangled


def gaps_of(name: str, source: SourceLines, text: str) -> dict[Gap, int]:
    """Each gap of a source and how many lines with code it has: neighbours of one function that never ran."""
    lines = text.splitlines()
    found: dict[Gap, int] = collections.defaultdict(int)
    current: Gap | None = None
    for number in sorted(source.ran):
        if source.ran[number]:
            current = None
            continue
        function = source.functions.get(number, "")
        if current is None or current.function != function:
            current = Gap(name, function, lines[number - 1].strip())
        found[current] += 1
    return dict(found)
