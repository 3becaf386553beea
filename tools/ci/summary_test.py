"""The closing line of CI says what Bazel recorded, also when a test left nothing behind."""

import json
import pathlib

import pytest

from tools.ci import summary

GOOGLETEST = """<testsuites><testsuite name="A">
<testcase name="Good" status="run" result="completed"/>
<testcase name="Bad" status="run" result="completed"><failure message="no"/></testcase>
<testcase name="Off" status="notrun" result="suppressed"/>
<testcase name="Skipped" status="run" result="skipped"><skipped message="no device"/></testcase>
</testsuite></testsuites>"""
ONE_GOOD = '<testsuites><testsuite><testcase name="test_good"/></testsuite></testsuites>'


def write_run(folder: pathlib.Path, name: str, targets: dict[str, tuple[str, str | None]]) -> str:
    """Writes the events of a run of ``targets`` (label -> status and test.xml) and gives the file's name."""
    lines = []
    for index, (label, (status, text)) in enumerate(targets.items()):
        if status == "NOT_BUILT":
            lines.append({"id": {"targetCompleted": {"label": label}}, "completed": {}})
            continue
        outputs = []
        if text is not None:
            xml = folder / f"{name} {index}.xml"
            xml.write_text(text)
            outputs.append({"name": "test.xml", "uri": xml.as_uri()})
        lines.append({"id": {"testResult": {"label": label}}, "testResult": {"testActionOutput": outputs}})
        lines.append({"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}})
    path = folder / f"{name}.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


@pytest.mark.parametrize(
    ("targets", "closing", "status"),
    [
        ({"//a": ("PASSED", ONE_GOOD), "//b": ("PASSED", ONE_GOOD)}, "2 passed, 0 failed", 0),
        ({"//a": ("FAILED", GOOGLETEST)}, "1 passed, 1 failed, 2 skipped", 1),
        ({"//a": ("PASSED", ONE_GOOD), "//b": ("TIMEOUT", None)}, "1 passed, 1 failed", 1),
        ({"//a": ("FAILED", ONE_GOOD)}, "1 passed, 1 failed", 1),
        ({"//a": ("PASSED", ONE_GOOD), "//b": ("NOT_BUILT", None)}, "1 passed, 1 failed", 1),
        ({"//a": ("FAILED", "<cut")}, "0 passed, 1 failed", 1),
        ({}, "0 passed, 0 failed", 1),
    ],
)
def test_closing_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    targets: dict[str, tuple[str, str | None]],
    closing: str,
    status: int,
) -> None:
    assert summary.main([write_run(tmp_path, "tests", targets)]) == status
    assert capsys.readouterr().out.splitlines()[-1] == closing


def test_failed_steps_count_once(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_run(tmp_path, "tests", {"//a": ("PASSED", ONE_GOOD)})
    bad = write_run(tmp_path, "sanitizers", {"//a": ("FAILED", GOOGLETEST)})
    status = summary.main(["--problem=lint", "--problem=tests", "--problem=sanitizers", good, bad])
    assert status == 1
    # lint, tests (failed, though no target did), and the one bad case
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 3 failed, 2 skipped"


def test_a_run_without_results_is_a_failure(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary.main([str(tmp_path / "tests.json")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


def test_what_ran_here_and_what_did_not() -> None:
    ran, kept, remote = {"status": "PASSED"}, {"cachedLocally": True}, {"executionInfo": {"cachedRemotely": True}}
    lines = [{"id": {"targetCompleted": {"label": "//g"}}, "completed": {}}]
    for name, results in {"a": [ran], "b": [kept], "c": [ran, kept], "d": [remote]}.items():
        lines += [{"id": {"testResult": {"label": f"//{name}"}}, "testResult": result} for result in results]
        lines.append({"id": {"testSummary": {"label": f"//{name}"}}, "testSummary": {"overallStatus": "PASSED"}})
    targets = summary.targets_of("\n".join(map(json.dumps, lines)))
    assert [label for label, target in targets.items() if target.ran] == ["//a", "//c"]  # of c one part
    assert [label for label, target in targets.items() if target.cached] == ["//b", "//d"]
