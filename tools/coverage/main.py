"""Lines that the tests reach, in C++ and Python: ``./bazelw run //tools/coverage [-- OPTIONS OF BAZEL TEST...]``.

Builds with --config=coverage, runs the tests, prints a table for each language, and writes docs/coverage.md and what it
was made of. Ends with 1, and leaves the page as it was, if a test failed; and with 1 after writing if a gap of the rooms
in gaps.py has no reason, or a reason no gap. With options that leave tests out only the tables are printed.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from tools.coverage import cpp, gaps, page, python_lines

TESTS = ["//cc/...", "//py/...", "//tests/..."]


class Bazel:
    """Bazel in the work tree at ``top``, with the output base that the caller chose."""

    def __init__(self, top: pathlib.Path, output_base: str | None) -> None:
        self._top = top
        self._start = ["./bazelw", *([f"--output_base={output_base}"] if output_base else [])]

    def test(self, options: list[str]) -> int:
        """Runs the tests and returns Bazel's exit status."""
        command = [*self._start, "test", "--config=coverage", "--keep_going", *options, "--", *TESTS]
        return subprocess.run(command, cwd=self._top, check=False).returncode

    def bin(self) -> pathlib.Path:
        """Where --config=coverage builds."""
        command = [*self._start, "info", "--config=coverage", "bazel-bin"]
        done = subprocess.run(command, cwd=self._top, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"coverage: ask Bazel for its output folder: ended with {done.returncode}\n{done.stderr}")
        return pathlib.Path(done.stdout.strip())


def cpp_counts(sources: dict[str, cpp.SourceLines]) -> dict[str, gaps.Count]:
    """Lines of each folder."""
    found: dict[str, gaps.Count] = collections.defaultdict(gaps.Count)
    for name, source in sources.items():
        folder = name.rpartition("/")[0]
        found[folder] += gaps.Count(len(source.ran), sum(1 for ran in source.ran.values() if ran))
    return dict(found)


def cpp_gaps(sources: dict[str, cpp.SourceLines], top: pathlib.Path) -> dict[gaps.Gap, int]:
    """The gaps of the rooms where each needs a reason."""
    found: dict[gaps.Gap, int] = {}
    for name, source in sources.items():
        if name.startswith(tuple(f"{room}/" for room in gaps.ROOMS)):
            found.update(cpp.gaps_of(name, source, (top / name).read_text(encoding="utf-8")))
    return found


def report(measured: gaps.Measured) -> None:
    """Prints the tables."""
    for language, counts in (("C++", measured.cpp), ("Python", measured.python)):
        total = sum(counts.values(), gaps.Count())
        for folder, count in [*sorted(counts.items()), (f"all {language}", total)]:
            print(f"{folder:32} {count.lines:6} lines {count.covered:6} covered {page.percent(count):>5} %")


def main() -> int:
    """Runs the tests, writes the page, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="coverage", description=__doc__)
    parser.add_argument("--output_base", help="of the Bazel that runs the tests; default: this work tree's")
    flags, options = parser.parse_known_args()
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        sys.exit(f"coverage: no work tree is known; remedy: start this with '{gaps.COMMAND}'")
    top = pathlib.Path(where)
    bazel = Bazel(top, flags.output_base)
    started = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="coldsnap-coverage.") as name:
        folder = pathlib.Path(name)
        bazel_bin = bazel.bin()
        variables = {**cpp.variables(bazel_bin), **python_lines.prepare(folder, top)}
        cpp.forget(bazel_bin)
        status = bazel.test([*(f"--test_env={key}={value}" for key, value in variables.items()), *options])
        if status:
            print(f"coverage: the tests ended with {status}: nothing was written; remedy: see Bazel's words above")
            return 1
        sources = cpp.read(bazel_bin, top)
        measured = gaps.Measured(cpp_counts(sources), python_lines.read(folder, top), cpp_gaps(sources, top))

    report(measured)
    if gaps.leaves_out(options):
        print(f"coverage: {gaps.PAGE} was left as it was, since {' '.join(options)} leave tests out")
        return 0
    explained = gaps.read_explained((top / gaps.EXPLAINED).read_text(encoding="utf-8"))
    (top / gaps.MEASURED).write_text(gaps.measured_text(measured), encoding="utf-8")
    (top / gaps.PAGE).write_text(page.render(measured, explained), encoding="utf-8")
    said = gaps.problems(measured, explained)
    for each in said:
        print(f"coverage: {each}")
    print(
        f"coverage: {gaps.PAGE} and {gaps.MEASURED} written, {len(measured.gaps)} gaps, {len(said)} problems"
        f" ({time.monotonic() - started:.0f} s)"
    )
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
