"""What a `bazel test` did, by its build events."""

from __future__ import annotations

import json
from typing import NamedTuple


class TestRun(NamedTuple):
    """The tests of one `bazel test`.

    Attributes:
        executed: Labels of those that ran, sorted.
        cached: Labels of those whose earlier result was taken.
        external: Labels of those with the tag ``external``, which have to run each time.
    """

    __test__ = False  # no test of pytest's

    executed: list[str]
    cached: list[str]
    external: list[str]

    @property
    def needless(self) -> list[str]:
        """Those that ran although nothing asked for it, if this is the second run."""
        return [label for label in self.executed if label not in self.external]


def read(text: str) -> TestRun:
    """Read the file of ``--build_event_json_file``.

    Raises:
        ValueError: A line is no JSON, or no test is in it.
    """
    executed: dict[str, bool] = {}
    external = set()
    for line in text.splitlines():
        event = json.loads(line)
        identity = event["id"]
        if "targetCompleted" in identity and "external" in event.get("completed", {}).get("tag", []):
            external.add(identity["targetCompleted"]["label"])
        if "testResult" in identity and "testResult" in event:
            label, result = identity["testResult"]["label"], event["testResult"]
            kept = result.get("cachedLocally", False) or result.get("executionInfo", {}).get("cachedRemotely", False)
            executed[label] = executed.get(label, False) or not kept
    if not executed:
        raise ValueError("no test is in the build events")
    ran = [label for label in sorted(executed) if executed[label]]
    return TestRun(
        ran, [label for label in sorted(executed) if not executed[label]], sorted(external & executed.keys())
    )
