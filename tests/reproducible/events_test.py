"""What counts as a test that ran again for nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reproducible import events


def written(**tests: Any) -> str:
    lines: list[dict[str, Any]] = [{"id": {"progress": {}}}]
    for name, (tags, *results) in tests.items():
        label = f"//t:{name}"
        lines.append({"id": {"targetCompleted": {"label": label}}, "completed": {"success": True, "tag": tags}})
        lines += [{"id": {"testResult": {"label": label, "shard": 1}}, "testResult": result} for result in results]
    return "\n".join(map(json.dumps, lines))


def test_what_ran_and_what_did_not() -> None:
    ran, kept, remote = {"status": "PASSED"}, {"cachedLocally": True}, {"executionInfo": {"cachedRemotely": True}}
    found = events.read(
        written(b=[[], ran], a=[["external"], ran], c=[["gpu"], kept], d=[[], ran, kept], e=[["external"], kept], f=[[], remote])
    )  # fmt: skip
    assert found.executed == ["//t:a", "//t:b", "//t:d"]  # of d one part
    assert found.cached == ["//t:c", "//t:e", "//t:f"]
    assert found.external == ["//t:a", "//t:e"]
    assert found.needless == ["//t:b", "//t:d"]


@pytest.mark.parametrize("text", ["", written(), "{"])
def test_events_without_tests_show_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"no test is in the build events|Expecting"):
        events.read(text)
