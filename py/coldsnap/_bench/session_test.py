"""What an interrupted calibration leaves, and who may go on with it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap import errors
from coldsnap._bench import rounds
from coldsnap._bench.cases import Measured, Setting
from coldsnap._bench.ceilings import Ceiling
from coldsnap._bench.session import NAME, Session, require_same

ABOUT = {
    "commit": "0.1.0",
    "machine": {"cpu": "CPU", "cores": 2},
    "seed": 0,
    "payload_bytes": 1000,
    "request": {"minutes": 10.0, "least": 3, "setting": {"threads": 2}},
}


class Memory:
    device = "host"
    payload_bytes = 1000
    extents = 1


class Fake(Measured):
    operation = "hydrate"

    def _sample(self) -> None:
        self.samples_s.append(0.5)
        self.residency_before.append(0.0)
        self.limits.append("read")


def case(route: str) -> Fake:
    subject: Any = Memory()
    return Fake(subject, route, "cold", "crc32", Setting(65536, 2, 1))


def session(folder: Path, earlier: dict[str, Any] | None = None) -> Session:
    about = copy.deepcopy(ABOUT)
    return Session(about, range(3, 3), rounds.Budget(None), folder, 0o700, ["cold", "warm"], earlier)


def ceiling() -> Ceiling:
    return Ceiling("raw_direct_read", 1, lambda _: 4000.0)


def test_after_every_part_there_is_a_file_that_says_what_is_missing(tmp_path: Path) -> None:
    session(tmp_path).measure("cold", [ceiling()], [case("direct")], 1.0)
    kept = json.loads((tmp_path / NAME).read_text())
    # It was written within the part, so the part is missing too.
    assert (kept["complete"], kept["missing"], kept["sittings"]) == (False, ["cold", "warm"], 1)
    assert [len(each["samples_s"]) for each in kept["cases"]] == [3]


def test_cases_with_samples_are_not_measured_again_and_ceilings_only_with_others(tmp_path: Path) -> None:
    first = session(tmp_path)
    first.measure("cold", [ceiling()], [case("direct")], 1.0)
    kept = first.document(complete=False)
    assert kept["missing"] == ["warm"]

    resumed = session(tmp_path, kept)
    resumed.measure("cold", [ceiling()], [case("direct")], 1.0)
    assert [len(each["samples"]) for each in resumed.document(complete=True)["ceilings"]] == [3]
    assert resumed.document(complete=True)["cases"] == kept["cases"]

    resumed = session(tmp_path, kept)
    resumed.measure("cold", [ceiling()], [case("direct"), case("buffered")], 1.0)
    found = resumed.document(complete=True)
    assert [len(each["samples"]) for each in found["ceilings"]] == [6]
    assert [len(each["samples_s"]) for each in found["cases"]] == [3, 3]
    assert (found["sittings"], found["missing"]) == (2, [])


def test_finals_measure_whoever_lacks_samples_and_nobody_twice(tmp_path: Path) -> None:
    run = session(tmp_path)
    run.meet("goal", [case("direct")])
    assert run.cases[case("direct").key].taken == 3
    run.meet("goal", [case("direct"), case("buffered")])
    assert [each.taken for each in run.cases.values()] == [6, 3]  # in the same rounds
    run.meet("goal", [case("direct"), case("buffered")])
    assert [each.taken for each in run.cases.values()] == [6, 3]
    assert run.left_out == []


def test_finals_without_time_are_named(tmp_path: Path) -> None:
    run = session(tmp_path)
    run.budget = rounds.Budget(0.0)
    run.meet("goal", [case("direct")])
    assert run.left_out == ["the finals of goal"]


def test_what_it_does_not_come_to_is_kept(tmp_path: Path) -> None:
    first = session(tmp_path)
    first.measure("cold", [], [case("direct")], 1.0)
    assert first.has(first.adopt(first.trials, case("buffered")), 2)
    kept = first.document(complete=False)
    found = session(tmp_path, kept).document(complete=False)
    assert (found["cases"], found["trials"]) == (kept["cases"], kept["trials"])
    assert [len(each["samples_s"]) for each in found["trials"]] == [2]


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for name in parents:
            document = document[name]
        document[last] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("commit", "other", "its commit was '0.1.0' and is 'other' here"),
        ("machine.cores", 16, "its machine.cores was 2 and is 16 here"),
        ("seed", 7, "its seed was 0 and is 7 here"),
        ("request.setting", {"threads": 3}, "its request.setting was {'threads': 2} and is {'threads': 3} here"),
    ],
)
def test_another_run_is_refused_with_the_difference(tmp_path: Path, path: str, value: Any, says: str) -> None:
    earlier = copy.deepcopy(ABOUT) | {"complete": False}
    here = copy.deepcopy(ABOUT)
    require_same(earlier, here, tmp_path)
    change(path, value)(here)
    with pytest.raises(errors.RequestInvalidError) as refused:
        require_same(earlier, here, tmp_path)
    assert refused.value.message.endswith(says)
    assert refused.value.remedy == "leave out --resume to begin anew"


def test_only_the_time_may_differ(tmp_path: Path) -> None:
    here = copy.deepcopy(ABOUT)
    change("request.minutes", None)(here)
    require_same(copy.deepcopy(ABOUT) | {"complete": False}, here, tmp_path)


@pytest.mark.parametrize("more", [{"complete": True}, {}], ids=["complete", "of before"])
def test_what_is_complete_is_not_gone_on_with(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(errors.RequestInvalidError, match="it is complete"):
        require_same(copy.deepcopy(ABOUT) | more, ABOUT, tmp_path)
