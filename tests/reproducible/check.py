"""`./bazelw run //tests/reproducible:check`: two checkouts make the same bytes, and nothing is tested twice.

HEAD is cloned into two folders of different names and depths, and built in each from nothing, with an output tree of its
own. What they made is compared byte for byte, and where it differs the members, sections and offsets are named. Then, in
the first, the same `bazel test` runs twice: the second time nothing may run but tests with the tag ``external``.
``--write`` keeps what came out in tests/reproducible/results.json, for docs/supply-chain.md.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from coldsnap._bench import machine
from tests.reproducible import differences
from tools.ci.summary import targets_of

# Label, and where Bazel puts it below .build/bin.
ARTIFACTS = {
    "//py:wheel": "py/coldsnap-*.whl",
    "//py:sbom": "py/coldsnap.cdx.json",
    "//cc/abi:libcoldsnap_hydration.so": "cc/abi/libcoldsnap_hydration.so",
}
# C++ and Python, with the native module and the wheel, and some that are external; `//...` is all there are.
TESTS = (
    "//cc/base/...",
    "//cc/digest/...",
    "//tests/api:import_test",
    "//tests/docs:failures_page_test",
    "//tests/wheel:all",
)
# Names of different lengths: a path that gets into a file changes its size, or at least its bytes.
FOLDERS = (("a/coldsnap", "o"), ("another/place/of-the-checkout", "output-of-the-second"))
# Of `bazel run` and of the launcher; the builds are to be as from a shell.
_NOT_FOR_BUILDS = ("BUILD_", "PYTHON", "RUNFILES_", "TEST_")


class Checkout(NamedTuple):
    """A clone of HEAD and where it builds: ``folder`` and ``output_base`` are absolute."""

    folder: pathlib.Path
    output_base: pathlib.Path

    def bazel(self, command: str, *arguments: str) -> float:
        """Run Bazel there; how many seconds it took.

        Raises:
            subprocess.CalledProcessError: It failed; what it printed says why.
        """
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_BUILDS)}
        program, begin = ["./bazelw", f"--output_base={self.output_base}", command], time.monotonic()
        subprocess.run([*program, *arguments], cwd=self.folder, env=environ, check=True)
        return time.monotonic() - begin

    def made(self, label: str) -> pathlib.Path:
        """The file of one of ``ARTIFACTS``.

        Raises:
            FileNotFoundError: There is none, or more than one.
        """
        found = list((self.folder / ".build" / "bin").glob(ARTIFACTS[label]))
        if len(found) != 1:
            raise FileNotFoundError(f"find what {label} makes: {len(found)} files are named {ARTIFACTS[label]}")
        return found[0]


@contextlib.contextmanager
def checkouts(source: pathlib.Path, commit: str) -> Iterator[list[Checkout]]:
    """Two clones of a commit; they, their output trees and their servers are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="coldsnap-reproducible-") as temporary:
        top = pathlib.Path(temporary)
        both = [Checkout(top / folder, top / output) for folder, output in FOLDERS]
        try:
            for each in both:
                each.folder.parent.mkdir(parents=True)
                subprocess.run(["git", "clone", "--quiet", "--no-checkout", source, each.folder], check=True)
                subprocess.run(["git", "-C", each.folder, "checkout", "--quiet", "--detach", commit], check=True)
            yield both
        finally:
            for each in both:
                if each.output_base.exists():
                    each.bazel("shutdown")
            # Bazel takes the write permission from what it built.
            subprocess.run(["chmod", "-R", "u+w", top], check=False)


def compared(first: Checkout, second: Checkout) -> tuple[list[dict[str, Any]], list[str]]:
    """What both made, for the results, and a line for each difference."""
    rows, lines = [], []
    for label in ARTIFACTS:
        paths = [each.made(label) for each in (first, second)]
        data = [path.read_bytes() for path in paths]
        if paths[0].name != paths[1].name:
            lines.append(f"{label}: it is named {paths[0].name} and {paths[1].name}")
        lines += differences.differences(data[0], data[1], label)
        digest = hashlib.sha256(data[0]).hexdigest()
        rows.append({"label": label, "file": paths[0].name, "nbytes": len(data[0]), "sha256": digest})
    return rows, lines


def tested_twice(where: Checkout, targets: Sequence[str], options: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What two runs of the same tests did, for the results, and a line for each test that ran again for nothing."""
    runs = []
    for number in (1, 2):
        log = where.folder.parent / f"events-{number}.json"
        # A test that fails is not kept, and would run again with good reason: then this ends with an error.
        seconds = where.bazel("test", f"--build_event_json_file={log}", *options, *targets)
        found = targets_of(log.read_text(encoding="utf-8"))
        ran = [label for label, target in found.items() if not target.cached]
        runs.append({"ran": len(ran), "kept": len(found) - len(ran), "seconds": round(seconds, 1)})
    if not found:
        raise ValueError(f"test {' '.join(targets)}: no test is in the build events")
    external = [label for label, target in found.items() if "external" in target.tags]
    lines = [
        f"{label} ran again, though nothing had changed and it is not external"
        for label in ran
        if label not in external
    ]
    return {"targets": list(targets), "first": runs[0], "second": runs[1], "external": external}, lines


def checked(source: pathlib.Path, targets: Sequence[str], options: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Both checks of the HEAD of ``source``: the results, and a line for each thing that is not as it should be."""
    head = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=True)
    commit = head.stdout.strip()
    found: dict[str, Any] = {
        "format": 1,
        "commit": commit,
        "machine": machine.machine_record("host", None),
        "builds": [],
    }
    with checkouts(source, commit) as both:
        for each, (folder, _) in zip(both, FOLDERS, strict=True):
            seconds = each.bazel("build", *options, *ARTIFACTS)
            found["builds"].append({"folder": folder, "seconds": round(seconds, 1)})
        found["artifacts"], lines = compared(*both)
        found["tests"], more = tested_twice(both[0], targets, options)
    return found, lines + more


def table(results: dict[str, Any]) -> str:
    """Results as text in Markdown: what was built where, a row for each file, and the second run."""
    record, tests = results["machine"], results["tests"]
    builds = " and ".join(f"`{build['folder']}` in {build['seconds']:.0f} s" for build in results["builds"])
    rows = [
        f"{record['cpu']}, {record['cores']} cores; Python {record['python']}; commit {results['commit'][:12]}. "
        f"Built from nothing in {builds}; in both the same bytes:",
        "",
        "| target | file | bytes | SHA-256 |",
        "| --- | --- | --- | --- |",
    ]
    rows += [
        f"| `{each['label']}` | `{each['file']}` | {each['nbytes']:,} | `{each['sha256']}` |"
        for each in results["artifacts"]
    ]
    first, second = tests["first"], tests["second"]
    again = f"{second['ran']}, with the tag `external`," if second["ran"] else "none"
    rows += [
        "",
        f"`./bazelw test {' '.join(tests['targets'])}`: {first['ran']} test targets ran in {first['seconds']:.0f} s; "
        f"the second time {again} in {second['seconds']:.0f} s.",
    ]
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Check, say what came out, and keep it if asked to; returns the exit status."""
    parser = argparse.ArgumentParser(prog="check", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tests", nargs="+", default=TESTS, help=f"run twice (default: {' '.join(TESTS)})")
    parser.add_argument("--jobs", type=int, help="for Bazel: how many commands at once (default: Bazel's own)")
    parser.add_argument("--write", action="store_true", help="keep the results in tests/reproducible/results.json")
    flags = parser.parse_args(arguments)
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        print("check: no work tree is known; start this with ./bazelw run //tests/reproducible:check", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was begun is cleared away then, too
    options = [] if flags.jobs is None else [f"--jobs={flags.jobs}"]
    try:
        found, lines = checked(pathlib.Path(where), flags.tests, options)
    except (OSError, ValueError, subprocess.CalledProcessError) as cause:
        print(f"check: {cause}", file=sys.stderr)
        return 2
    print(table(found))
    if lines:
        print("\n".join([*lines, f"check: {len(lines)} things are not as they should be"]))
        return 1
    if flags.write:
        target = pathlib.Path(where, "tests", "reproducible", "results.json")
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("check: the same bytes from both checkouts, and no test ran twice for nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
