"""What ``//tests/roots:debian_testing`` writes to results.json, and the tables of docs/toolchains.md made from it."""

from __future__ import annotations

import collections
import re
import xml.etree.ElementTree
from collections.abc import Mapping
from typing import Any

from tools.ci.summary import Target, count_of

FORMAT = 1
_PLACE = re.compile(r"^\S+:\d+:?\s+")  # of the skip in its source
_SCRATCH = re.compile(r"/[^\s:=,]*/_tmp/[^\s:=,]*")  # a test's own folder, another one for each case


def tested(targets: Mapping[str, Target]) -> dict[str, Any]:
    """A run of everything: targets, cases by outcome, what failed, and how many cases were skipped for which reason."""
    count, failed = count_of(targets)
    reasons = collections.Counter(
        reason for each in targets.values() for text in each.xml_texts for reason in skips(text)
    )
    return {
        "targets": len(targets),
        "passed": count.passed,
        "failed": count.failed,
        "skipped": count.skipped,
        "failed_targets": failed,
        "skips": dict(sorted(reasons.items())),
    }


def skips(xml_text: str) -> list[str]:
    """Why each skipped case of a test.xml was skipped."""
    try:
        cases = list(xml.etree.ElementTree.fromstring(xml_text).iter("testcase"))
    except xml.etree.ElementTree.ParseError:
        return []
    found = []
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            reason = _PLACE.sub("", skipped.get("message", "").strip())
            found.append(_SCRATCH.sub("…", reason) or "no reason was given")
        elif case.get("result") == "suppressed":
            found.append("disabled in its source")
    return found


def again(targets: Mapping[str, Target]) -> dict[str, Any]:
    """The same run once more: how many results were taken from the first, and who ran although nothing had changed."""
    ran = {label: target for label, target in targets.items() if not target.cached}
    return {
        "targets": len(targets),
        "cached": len(targets) - len(ran),
        "external": sum("external" in target.tags for target in ran.values()),
        "ran": [label for label, target in ran.items() if "external" not in target.tags],
    }


def problems(found: Mapping[str, Any]) -> list[str]:
    """What of the results is not as it must be, in words."""
    tests, second, rules = found["tests"], found["again"], found["rules_cuda"]
    words = [f"test //...: {label}" for label in tests["failed_targets"]]
    if not tests["passed"]:
        words.append("test //...: no case passed")
    if second["targets"] != tests["targets"] or not second["cached"]:
        words.append(f"test //... again: {second['targets']} targets, {second['cached']} of them cached")
    words += [f"test //... again: {label} ran, though nothing had changed" for label in second["ran"]]
    for step in ("build", "tests") if rules else ():
        words += [f"with the published rules_cuda: {label}" for label in rules[step]["failed_targets"]]
    return words


def table(found: Mapping[str, Any]) -> str:
    """The results as text in Markdown: where, and a row for each step."""
    system, machine, tests, second = found["system"], found["machine"], found["tests"], found["again"]
    versions = ", ".join(f"{name} {system[name]}" for name in ("Bazel", "g++", "glibc", "Python"))
    where = f"Debian {system['suite']}, {versions}; {machine['cpu']}, {machine['cores']} cores"
    rows = [
        ("the root, by mmdebstrap", "made", "root"),
        ("a clean checkout, and what `./bazelw` installs", "installed", "packages"),
        ("`./bazelw test //...`", _outcome(tests), "tests"),
        ("the same again", _once_more(second), "again"),
    ]
    rules = found["rules_cuda"]
    if rules:
        version = f"`--config=real_rules_cuda`, rules_cuda {rules['tag']}"
        rows.append((f"`./bazelw build //...` with {version}", _built(rules["build"]), "rules_cuda build"))
        rows.append((f"`./bazelw test {rules['tested']}` so", _outcome(rules["tests"]), "rules_cuda tests"))
    lines = [
        f"{where}; commit {found['commit'][:12]}, {found['date']}:",
        "",
        "| step | result | seconds |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {step} | {result} | {found['seconds'][key]:.0f} |" for step, result, key in rows]
    return "\n".join(lines) + "\n"


def skips_table(found: Mapping[str, Any]) -> str:
    """Why cases were skipped, the most frequent reason first."""
    reasons = sorted(found["tests"]["skips"].items(), key=lambda each: (-each[1], each[0]))
    lines = ["| cases | reason |", "| --- | --- |", *(f"| {count} | {_cell(reason)} |" for reason, count in reasons)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _outcome(tests: Mapping[str, Any]) -> str:
    cases = f"{tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped"
    return f"{tests['targets']} targets; {cases}"


def _once_more(second: Mapping[str, Any]) -> str:
    return f"{second['cached']} targets taken from the first run, {second['external']} tagged `external` run, {len(second['ran'])} others run"


def _built(build: Mapping[str, Any]) -> str:
    return f"{build['targets']} targets built, {len(build['failed_targets'])} failed"
