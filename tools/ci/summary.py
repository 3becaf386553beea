"""Counts test cases in what Bazel recorded: ``summary.py [--problem=STEP]... EVENTS.json...``.

Each file is one run's ``--build_event_json_file``. Every test target in it left a test.xml in JUnit's form, from
GoogleTest or pytest, whose cases are counted. A target that failed without a failed case (a crash, a time-out, a build
error) counts as one, and so does a step that failed for another reason. The last line is ``N passed, N failed``; the
exit status is 1 if anything failed or no case ran.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree
from collections.abc import Mapping

_NOT_BUILT = "NOT_BUILT"


@dataclasses.dataclass
class Count:
    """How many cases ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        """Adds ``other`` to this."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def cases_of(xml_text: str) -> Count:
    """The cases in one test.xml."""
    count = Count()
    try:
        root = xml.etree.ElementTree.fromstring(xml_text)
    except xml.etree.ElementTree.ParseError:
        return count
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            count.skipped += 1
        else:
            count.passed += 1
    return count


@dataclasses.dataclass
class Target:
    """What a run says of one target.

    Attributes:
        status: ``PASSED`` and the like of a test; ``NOT_BUILT`` where it didn't come that far.
        ran: Whether any part of it ran here.
        tags: The target's own.
        xml_texts: Its test.xml, where it left one.
    """

    status: str = ""
    ran: bool = False
    tags: tuple[str, ...] = ()
    xml_texts: list[str] = dataclasses.field(default_factory=list)

    @property
    def cached(self) -> bool:
        """Whether an earlier run's result was taken."""
        return not self.ran and self.status != _NOT_BUILT


def _xml_texts(outputs: list[dict[str, str]], root: pathlib.Path) -> list[str]:
    uris = [output["uri"] for output in outputs if output["name"] == "test.xml"]
    paths = [root / urllib.parse.unquote(urllib.parse.urlparse(uri).path).lstrip("/") for uri in uris]
    return [path.read_text(errors="replace") for path in paths if path.is_file()]


def targets_of(events: str, root: pathlib.Path = pathlib.Path("/")) -> dict[str, Target]:
    """The tests of one run and what could not be built, by label; the files that it names are looked for below ``root``."""
    found: dict[str, Target] = collections.defaultdict(Target)
    tags: dict[str, list[str]] = {}
    for line in events.splitlines():
        event = json.loads(line)
        identity = event["id"]
        if "targetConfigured" in identity:
            tags[identity["targetConfigured"]["label"]] = event.get("configured", {}).get("tag", [])
        elif "testResult" in identity and "testResult" in event:
            result = event["testResult"]
            target = found[identity["testResult"]["label"]]
            # A later attempt replaces an earlier one.
            target.xml_texts = _xml_texts(result.get("testActionOutput", []), root)
            remote = result.get("executionInfo", {}).get("cachedRemotely", False)
            target.ran |= not (remote or result.get("cachedLocally", False))
        elif "testSummary" in identity and "testSummary" in event:
            found[identity["testSummary"]["label"]].status = event["testSummary"].get("overallStatus", "NO_STATUS")
        elif "targetCompleted" in identity and not event.get("completed", {}).get("success", False):
            # A test that was built and failed has a summary, which says more.
            target = found[identity["targetCompleted"]["label"]]
            target.status = target.status or _NOT_BUILT
    for label, target in found.items():
        target.tags = tuple(tags.get(label, ()))
    return {label: target for label, target in sorted(found.items()) if target.status}


def read_run(events: str) -> tuple[Count, list[str]]:
    """The count of one run, and the labels of the targets that failed."""
    return count_of(targets_of(events))


def count_of(targets: Mapping[str, Target]) -> tuple[Count, list[str]]:
    """The count of these targets, and the labels of those that failed."""
    total = Count()
    failed = []
    for label, target in targets.items():
        count = Count()
        for text in target.xml_texts:
            count.add(cases_of(text))
        if target.status not in ("PASSED", "FLAKY"):
            failed.append(f"{label} ({target.status})")
            count.failed = max(count.failed, 1)
        total.add(count)
    return total, failed


def main(arguments: list[str]) -> int:
    """Prints the failed targets and the closing line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", action="append", default=[], help="a step that failed")
    parser.add_argument("events", nargs="*", help="files written by --build_event_json_file")
    flags = parser.parse_args(arguments)
    total = Count()
    for name in flags.events:
        path = pathlib.Path(name)
        step = path.stem
        if not path.is_file():
            print(f"summary: {step} left no results: it ended before its first test")
            total.failed += 1
            continue
        count, failed = read_run(path.read_text())
        for label in failed:
            print(f"FAILED: {label} in {step}")
        if step in flags.problem and not failed:
            count.failed += 1
        total.add(count)
        print(f"{step}: {count.passed} cases passed, {count.failed} failed, {count.skipped} skipped")
    others = [step for step in flags.problem if step not in {pathlib.Path(name).stem for name in flags.events}]
    for step in others:
        print(f"FAILED: {step}")
    total.failed += len(others)
    if total.passed + total.failed == 0:
        print("summary: no test ran")
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
