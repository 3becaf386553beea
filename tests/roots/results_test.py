"""What the results keep of two runs, what is wrong with them, and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roots import results
from tools.ci.summary import Target

GOOGLETEST = """<testsuites><testsuite name="A"><testcase name="Good" result="completed"/>
<testcase name="Off" result="suppressed"/>
<testcase name="Skipped" result="skipped"><skipped message="cc/a_test.cc:12&#x0A;no | device"/></testcase>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite><testcase name="test_good"/>
<testcase name="test_not_here"><skipped type="pytest.skip" message="no | device">a_test.py:3: no</skipped></testcase>
</testsuite></testsuites>"""


def run_of(*, cached: bool = False, status: str = "PASSED") -> dict[str, Target]:
    """A run of three targets, of which one is tagged external."""
    return {
        "//a": Target(status, not cached, (), [GOOGLETEST]),
        "//b": Target("PASSED", not cached, (), [PYTEST]),
        "//c": Target("PASSED", True, ("external",), []),
    }


def found(**other: Any) -> dict[str, Any]:
    """Results in which all is well, but for what is given."""
    rules = {
        "tag": "v9.8.7",
        "build": {"targets": 7, "failed_targets": []},
        "tested": "//b",
        "tests": results.tested(run_of()),
    }
    return {
        "commit": "0123456789abcdef",
        "date": "2026-01-02",
        "machine": {"cpu": "Example", "cores": 2},
        "system": {"suite": "testing", "Bazel": "7", "g++": "15", "glibc": "2.43", "Python": "3.11.7"},
        "tests": results.tested(run_of()),
        "again": results.again(run_of(cached=True)),
        "rules_cuda": rules,
        "seconds": dict.fromkeys(["root", "packages", "tests", "again", "rules_cuda build", "rules_cuda tests"], 1.4),
        **other,
    }


def test_a_run_is_counted_and_skips_have_their_reasons() -> None:
    assert results.tested(run_of(status="FAILED")) == {
        "targets": 3,
        "passed": 2,
        "failed": 1,
        "skipped": 3,
        "failed_targets": ["//a (FAILED)"],
        "skips": {"disabled in its source": 1, "no | device": 2},
    }


def test_a_damaged_file_has_no_skips() -> None:
    assert results.skips("<cut") == []


def test_the_second_run_is_split_by_who_ran() -> None:
    assert results.again(run_of(cached=True)) == {"targets": 3, "cached": 2, "external": 1, "ran": []}
    assert results.again(run_of()) == {"targets": 3, "cached": 0, "external": 1, "ran": ["//a", "//b"]}


def test_nothing_is_wrong_where_all_is_well() -> None:
    assert results.problems(found()) == []
    assert results.problems(found(rules_cuda=None)) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"tests": results.tested(run_of(status="TIMEOUT"))}, ["test //...: //a (TIMEOUT)"]),
        (
            {"again": results.again(run_of())},
            [
                "test //... again: 3 targets, 0 of them cached",
                "test //... again: //a ran, though nothing had changed",
                "test //... again: //b ran, though nothing had changed",
            ],
        ),
        (
            {"again": results.again({"//a": run_of(cached=True)["//a"]})},
            ["test //... again: 1 targets, 1 of them cached"],
        ),
        (
            {"rules_cuda": {**found()["rules_cuda"], "build": {"targets": 7, "failed_targets": ["//a:so"]}}},
            ["with the published rules_cuda: //a:so"],
        ),
    ],
)
def test_what_is_wrong_is_said(other: dict[str, Any], words: list[str]) -> None:
    assert results.problems(found(**other)) == words


def test_a_run_in_which_nothing_ran_is_wrong() -> None:
    assert "test //...: no case passed" in results.problems(found(tests=results.tested({}), again=results.again({})))


def test_the_table_has_a_row_for_each_step() -> None:
    assert results.table(found()).splitlines() == [
        "Debian testing, Bazel 7, g++ 15, glibc 2.43, Python 3.11.7; Example, 2 cores; commit 0123456789ab, 2026-01-02:",
        "",
        "| step | result | seconds |",
        "| --- | --- | --- |",
        "| the root, by mmdebstrap | made | 1 |",
        "| a clean checkout, and what `./bazelw` installs | installed | 1 |",
        "| `./bazelw test //...` | 3 targets; 2 passed, 0 failed, 3 skipped | 1 |",
        "| the same again | 2 targets taken from the first run, 1 tagged `external` run, 0 others run | 1 |",
        "| `./bazelw build //...` with `--config=real_rules_cuda`, rules_cuda v9.8.7 | 7 targets built, 0 failed | 1 |",
        "| `./bazelw test //b` so | 3 targets; 2 passed, 0 failed, 3 skipped | 1 |",
    ]
    assert "rules_cuda" not in results.table(found(rules_cuda=None))


def test_skips_are_listed_with_the_most_frequent_first() -> None:
    assert results.skips_table(found()).splitlines()[2:] == ["| 2 | no \\| device |", "| 1 | disabled in its source |"]


def test_a_reason_is_the_same_wherever_the_case_had_its_folder() -> None:
    said = "mount -o lowerdir=/x/_tmp/{0}/a:/x/_tmp/{0}/b /x/_tmp/{0}/c: refused by /etc/fstab"
    text = "".join(f'<testcase><skipped message="{said.format(each)}"/></testcase>' for each in ("1f", "2e"))
    assert results.skips(f"<t>{text}</t>") == ["mount -o lowerdir=…:… …: refused by /etc/fstab"] * 2
