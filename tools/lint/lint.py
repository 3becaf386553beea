"""Every formatter and linter over the whole work tree: ``./bazelw run //tools/lint [-- --fix] [-- --tidy[=widths]]``.

Says what it ran, over how many files and how it went; ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

from tools.lint import checks

CPP = (".c", ".cc", ".h", ".cu", ".cuh")
STARLARK_NAMES = ("BUILD", "WORKSPACE", "BUILD.subset")
# Off: advice for Bazel 8 that Bazel 4 can't follow, and macros of WORKSPACE, which have no name of their own.
# What is lost between 32 and 64 bits: a sixth of the time that all of .clang-tidy takes.
WIDTHS = (
    "-*,bugprone-implicit-widening-of-multiplication-result,bugprone-misplaced-widening-cast,"
    "bugprone-narrowing-conversions,bugprone-too-small-loop-variable,clang-diagnostic-shorten-64-to-32"
)
BUILDIFIER_WARNINGS = "-native-cc-info,-native-cc-common,-unnamed-macro,-function-docstring-args,-function-docstring"


def files_of(root: pathlib.Path) -> list[pathlib.Path]:
    """What git tracks or would track, relative to ``root``."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    paths = {pathlib.Path(name) for name in listed.stdout.decode().split("\0") if name}
    return sorted(path for path in paths if (root / path).is_file() and not (root / path).is_symlink())


def tool(name: str) -> str:
    """A program of the environment this runs in."""
    return str(pathlib.Path(sys.executable).parent / name)


class Report:
    """Runs steps and remembers which had findings."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self.failed: list[str] = []

    def done(self, name: str, count: int, output: str, ok: bool, started: float) -> None:
        """Prints the line of a step, and what it found."""
        print(
            f"lint: {name}: {count} files, {'ok' if ok else 'FOUND'} ({time.monotonic() - started:.1f} s)", flush=True
        )
        if not ok:
            self.failed.append(name)
        if output.strip() and not ok:
            print(output.rstrip(), flush=True)

    def run(self, name: str, command: list[str], paths: list[pathlib.Path]) -> None:
        """One program over ``paths``; any exit status but 0 is a finding."""
        started = time.monotonic()
        if not paths:
            self.done(name, 0, "", True, started)
            return
        done = subprocess.run([*command, *map(str, paths)], cwd=self._root, capture_output=True, text=True, check=False)
        self.done(name, len(paths), done.stdout + done.stderr, done.returncode == 0, started)


def own_checks(report: Report, root: pathlib.Path, paths: list[pathlib.Path]) -> None:
    """The checks of checks.py over every text file."""
    started = time.monotonic()
    lines = []
    count = 0
    for path in paths:
        data = (root / path).read_bytes()
        if b"\0" in data:
            continue
        count += 1
        found = checks.findings(path, data.decode(errors="replace"))
        lines += [f"{path}:{number}: {message}" for number, message in found]
    report.done("own checks", count, "\n".join(lines), not lines, started)


def tidy(report: Report, root: pathlib.Path, paths: list[pathlib.Path], which: str) -> None:
    """clang-tidy over the C++ sources, against the headers that Bazel has fetched for the compiler."""
    started = time.monotonic()
    sources = [path for path in paths if path.suffix == ".cc"]
    # .build/out is <output base>/execroot/coldsnap/bazel-out.
    external = (root / ".build" / "out").resolve().parents[2] / "external"
    headers = [*external.glob("*/include"), external / "cuda_toolkit" / "toolkit" / "include"]
    headers += [external / "pyenv" / "nanobind" / "include"]
    arguments = ["-std=c++20", "-xc++", "-Wshorten-64-to-32", "-I."]
    arguments += [part for folder in sorted(headers) for part in ("-isystem", str(folder))]
    checks_of = [f"--checks={WIDTHS}"] if which == "widths" else []

    def one(path: pathlib.Path) -> list[str]:
        command = [tool("clang-tidy"), "--quiet", *checks_of, str(path), "--", *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).replace(f"{root}/", "").splitlines()
        said = [line.removeprefix("./") for line in lines if re.search(r": (error|warning): ", line)]
        if done.returncode and not said:
            return [f"{path}: clang-tidy ended with {done.returncode}: {' '.join(lines[-3:])}"]
        # Only what lies in our folders: clang refuses a template of RapidJSON's that the compiler accepts.
        return [line for line in said if not line.startswith("/")]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = sorted({line for lines in pool.map(one, sources) for line in lines})
    if any("file not found" in line for line in found):
        found.append("headers are missing that Bazel fetches; remedy: run './bazelw build //...' first")
    report.done(f"clang-tidy ({which})", len(sources), "\n".join(found), not found, started)


def mypy(report: Report, root: pathlib.Path) -> None:
    """Types of what users import, against the packages that it is tested with."""
    started = time.monotonic()
    # The link leads into the environment's folder, from where it may lead on to the interpreter's.
    around = pathlib.Path(os.readlink(pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["PYENV"]))).parent
    config = pathlib.Path(os.environ["RUNFILES_ROOT"], "tools", "lint", "mypy.ini")
    command = [tool("mypy"), f"--config-file={config}", f"--python-executable={around / 'venv' / 'bin' / 'python'}"]
    cache = os.devnull if os.environ.get("CI") == "true" else root / ".build" / "mypy"  # a CI run leaves no file
    command += [f"--cache-dir={cache}", "--no-error-summary", "-p", "coldsnap"]
    done = subprocess.run(
        command, cwd=root, env=dict(os.environ, MYPYPATH="py"), capture_output=True, text=True, check=False
    )
    count = len([*(root / "py").rglob("*.py")])
    report.done("mypy", count, done.stdout + done.stderr, done.returncode == 0, started)


def buildifier(report: Report, paths: list[pathlib.Path], fix: bool) -> None:
    """Runs buildifier over what Bazel reads, if npm was there to bring it."""
    program = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["BUILDIFIER"])
    if not program.exists() or not program.stat().st_size:
        print(
            "lint: buildifier: SKIPPED, it comes from npm and npm is not there;"
            " remedy: install npm and run 'bazel sync --only=buildifier', or name the program in COLDSNAP_BUILDIFIER"
        )
        return
    mode = ["-mode=fix", "-lint=fix"] if fix else ["-mode=check", "-lint=warn"]
    report.run("buildifier", [str(program), *mode, f"-warnings={BUILDIFIER_WARNINGS}"], paths)


def main() -> int:
    """Runs everything and returns the exit status."""
    parser = argparse.ArgumentParser(prog="lint", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="format in place and repair what can be repaired")
    parser.add_argument(
        "--tidy",
        nargs="?",
        const="all",
        choices=("all", "widths"),
        help="also run clang-tidy: all of .clang-tidy (minutes), or what is lost between 32 and 64 bits",
    )
    flags = parser.parse_args()
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        sys.exit("lint: no work tree is known; remedy: start this with './bazelw run //tools/lint'")
    root = pathlib.Path(where)

    paths = files_of(root)
    python = [path for path in paths if path.suffix in (".py", ".pyi")]
    cpp = [path for path in paths if path.suffix in CPP]
    starlark = [path for path in paths if path.name in STARLARK_NAMES or path.suffix in (".bzl", ".BUILD")]

    report = Report(root)
    ruff = [tool("ruff"), "check", "--no-cache", "--force-exclude", "--quiet"]
    report.run("ruff check", [*ruff, *(["--fix"] if flags.fix else [])], python)
    ruff_format = [tool("ruff"), "format", "--no-cache", "--force-exclude", "--quiet"]
    report.run("ruff format", [*ruff_format, *([] if flags.fix else ["--diff"])], python)
    report.run("clang-format", [tool("clang-format"), *(["-i"] if flags.fix else ["--dry-run", "-Werror"])], cpp)
    buildifier(report, starlark, flags.fix)
    mypy(report, root)
    own_checks(report, root, paths)
    if flags.tidy:
        tidy(report, root, paths, flags.tidy)

    print(f"lint: {len(paths)} files: " + (f"findings by {', '.join(report.failed)}" if report.failed else "all clean"))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
