"""What two calibrations are said to be, from samples of our own making."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter
from typing import Any

import pytest

from coldsnap import errors
from coldsnap._bench import compare

MACHINE = {"cpu": "CPU", "cores": 2, "memory_bytes": 1 << 33, "device": "host", "drive": None}


def results(
    rates: list[float], paces: list[float] | None = None, *, cache: str = "cold", cpu: str = "CPU"
) -> dict[str, Any]:
    """One case of 1000 bytes with these rates, and the raw reads of the same rounds."""
    case = {"operation": "hydrate", "route": "direct", "cache": cache, "digest": "crc32+sha256", "place": "host"}
    case |= {"chunk_bytes": 1 << 20, "queue_depth": 8, "threads": 4, "samples_s": [1000 / rate for rate in rates]}
    case |= {"ceiling": None if cache == "half" else "raw_direct_read.t2", "bytes_per_second": rates[0]}
    paces = paces or [10.0] * len(rates)
    ceiling = {
        "name": "raw_direct_read.t2",
        "unit": "bytes_per_second",
        "samples": paces,
        "median": statistics.median(paces),
    }
    return {
        "format": 1,
        "machine": MACHINE | {"cpu": cpu},
        "payload_bytes": 1000,
        "ceilings": [ceiling],
        "cases": [case],
    }


def verdict(earlier: dict[str, Any], later: dict[str, Any]) -> str:
    (row,) = compare.compare(earlier, later)
    assert list(row) == ["case", "verdict", "ratio", "low", "high", "why"]
    assert row["verdict"] in compare.VERDICTS
    return str(row["verdict"])


# Critical values of Mann and Whitney's U, two-sided, as any table of it has them.
@pytest.mark.parametrize(
    ("n", "m", "at_10", "at_5"),
    [
        (2, 2, None, None),
        (3, 2, None, None),
        (3, 3, 0, None),
        (4, 4, 1, 0),
        (5, 3, 1, 0),
        (5, 5, 4, 2),
        (7, 7, 11, 8),
        (9, 9, 21, 17),
    ],
)
def test_the_interval_is_that_of_the_rank_test(n: int, m: int, at_10: int | None, at_5: int | None) -> None:
    assert compare._rank(n, m, 0.1) == compare._rank(m, n, 0.1) == at_10
    assert compare._rank(n, m, 0.05) == compare._rank(m, n, 0.05) == at_5


def test_the_count_of_orders_is_right() -> None:
    counted = Counter(
        sum(one > other for one in order for other in range(7) if other not in order)
        for order in itertools.combinations(range(7), 3)
    )
    assert [compare._ways(u, 3, 4) for u in range(13)] == [counted[u] for u in range(13)]


def test_many_samples_take_the_normal_approximation_near_the_exact_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    near = compare._rank(21, 21, 0.05)
    monkeypatch.setattr(compare, "_EXACT", 1000)
    exact = compare._rank(21, 21, 0.05)
    assert near is not None and exact is not None
    assert abs(near - exact) <= 2


def test_a_run_compared_with_itself_is_never_faster_or_slower() -> None:
    assert verdict(results([5.0, 5.1, 4.9, 5.0]), results([5.0, 5.1, 4.9, 5.0])) == "same"
    assert verdict(results([5.0, 8.0, 3.0, 5.5]), results([5.0, 8.0, 3.0, 5.5])) == "unclear"


@pytest.mark.parametrize(("factor", "wanted"), [(0.7, "slower"), (1.4, "faster"), (0.99, "same"), (0.92, "unclear")])
def test_what_changes_the_route_alone_is_seen(factor: float, wanted: str) -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05, 4.9], [10.0, 10.2, 9.9, 10.1, 9.8]
    assert verdict(results(before, paces), results([rate * factor for rate in before], paces)) == wanted


def test_a_machine_that_changed_its_pace_is_no_slower_route() -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05], [10.0, 10.2, 9.9, 10.1]
    halved = results([rate / 2 for rate in before], [pace / 2 for pace in paces])
    (row,) = compare.compare(results(before, paces), halved)
    assert row["verdict"] == "unclear"
    assert row["why"] == "slower by itself, same for what plain reads or writes gave"


@pytest.mark.parametrize(
    ("paces_by", "rates_by", "wanted"), [(0.8, 0.66, "unclear"), (0.8, 0.5, "slower"), (1, 0.66, "slower")]
)
def test_the_more_a_machine_changed_the_further_a_case_has_to_be(paces_by: float, rates_by: float, wanted: str) -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05], [10.0, 10.2, 9.9, 10.1]
    later = results([rates_by * rate for rate in before], [paces_by * pace for pace in paces])
    (row,) = compare.compare(results(before, paces), later)
    assert row["verdict"] == wanted
    said = "slower, but the machine itself changed its pace by 1.25 times, and load is not shared evenly"
    assert row["why"] == (said if wanted == "unclear" else "")


def test_other_machines_compare_by_shares_of_their_ceilings() -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05], [10.0, 10.2, 9.9, 10.1]
    twice = [2 * pace for pace in paces]
    assert verdict(results(before, paces), results([2 * rate for rate in before], twice, cpu="new")) == "same"
    assert verdict(results(before, paces), results(before, twice, cpu="new")) == "slower"
    no_ceiling = results(before, paces, cache="half", cpu="new")
    no_ceiling["ceilings"] = []  # as of a calibration of warm restores alone
    (row,) = compare.compare(results(before, paces, cache="half"), no_ceiling)
    assert (row["verdict"], row["why"]) == ("unclear", "another machine, and nothing to measure it by")


def test_a_case_without_a_ceiling_is_held_against_the_raw_reads() -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05], [10.0, 10.2, 9.9, 10.1]
    halved = results([rate / 2 for rate in before], [pace / 2 for pace in paces], cache="half")
    assert verdict(results(before, paces, cache="half"), halved) == "unclear"
    slow = results([rate / 2 for rate in before], paces, cache="half")
    assert verdict(results(before, paces, cache="half"), slow) == "slower"


def test_processors_that_were_busy_are_no_slower_route() -> None:
    before, paces = [5.0, 5.1, 4.95, 5.05], [10.0, 10.2, 9.9, 10.1]
    earlier, later = results(before, paces), results([rate / 2 for rate in before], paces)
    assert verdict(earlier, later) == "slower"
    for each, hashed in ((earlier, 2.0), (later, 1.0)):
        each["cases"][0]["processors"] = "processors_cold.t2"
        pace = {"name": "processors_cold.t2", "unit": "bytes_per_second", "samples": [hashed] * 4, "median": hashed}
        each["ceilings"].append(pace)
    (row,) = compare.compare(earlier, later)
    assert row["verdict"] == "unclear"
    assert row["why"].endswith("slower for what plain reads or writes gave, same for what the processors gave")


def test_what_was_measured_beside_other_rounds_is_unclear() -> None:
    earlier, later = results([5.0, 5.1, 4.95, 5.05]), results([1.0, 1.1, 0.9, 1.05])
    assert verdict(earlier, later) == "slower"
    later["cases"][0]["processors"] = None
    assert verdict(earlier, later) == "unclear"


@pytest.mark.parametrize(
    ("route", "cache", "probe"),
    [
        ("direct", "cold", "raw_direct_read.t2"),
        ("buffered", "cold", "raw_buffered_read.t4"),
        ("auto", "half", "raw_half_read.t4"),
    ],
)
def test_each_case_has_the_probe_that_is_nearest(route: str, cache: str, probe: str) -> None:
    ceilings = {
        name: {"name": name, "median": rate}
        for name, rate in (
            ("raw_direct_read.t2", 3.0),
            ("raw_buffered_read.t1", 1.0),
            ("raw_buffered_read.t4", 2.0),
            ("raw_buffered_read.t8.mixed", 9.0),
            ("raw_half_read.t4", 2.0),
        )
    }
    entry = results([5.0], cache=cache)["cases"][0] | {"route": route}
    assert compare._io_of(entry, ceilings) == probe


def test_two_samples_say_nothing() -> None:
    (row,) = compare.compare(results([5.0, 5.0]), results([1.0, 1.0]))
    assert (row["verdict"], row["low"], row["high"]) == ("unclear", None, None)
    assert "too few samples" in row["why"]


@pytest.mark.parametrize("count", [4, 5, 9])
def test_equal_runs_of_a_restless_machine_are_hardly_ever_told_apart(count: int) -> None:
    """Noise of 10 % from sample to sample, and of 15 % from run to run in which case and ceiling share."""
    chance = random.Random(count)
    wrong = 0
    for _ in range(1000):
        runs = []
        for _ in range(2):
            pace = chance.gauss(1.0, 0.15)
            paces = [10 * pace * chance.lognormvariate(0, 0.1) for _ in range(count)]
            runs.append(results([p / 2 * chance.lognormvariate(0, 0.1) for p in paces], paces))
        wrong += verdict(*runs) in ("faster", "slower")
    assert wrong <= 10  # one in a hundred


def test_a_load_that_hits_a_case_harder_than_its_probes_is_hardly_ever_a_slower_route() -> None:
    """Runs whose pace is their own, between once and twice as slow, and costs the case up to as much again."""
    chance = random.Random(3)
    wrong = 0
    for _ in range(1000):
        runs, harder = [], chance.uniform(0, 1)
        for _ in range(2):
            load = chance.uniform(1.0, 2.0)
            paces = [10 / load * chance.lognormvariate(0, 0.05) for _ in range(5)]
            more = load**harder
            runs.append(results([pace / 2 / more * chance.lognormvariate(0, 0.05) for pace in paces], paces))
        wrong += verdict(*runs) in ("faster", "slower")
    assert wrong <= 20


def test_a_slow_route_is_seen_through_the_same_noise() -> None:
    chance = random.Random(1)
    seen = 0
    for _ in range(200):
        paces = [[10 * chance.lognormvariate(0, 0.05) for _ in range(5)] for _ in range(2)]
        rates = [[pace / 2 * chance.lognormvariate(0, 0.05) for pace in each] for each in paces]
        seen += verdict(results(rates[0], paces[0]), results([rate / 1.5 for rate in rates[1]], paces[1])) == "slower"
    assert seen >= 190


def test_cases_that_only_one_has_are_left_out() -> None:
    earlier, later = results([5.0, 5.1, 4.9]), results([5.0, 5.1, 4.9])
    later["cases"][0]["threads"] = 3
    assert compare.compare(earlier, later) == []


def test_other_data_is_refused_with_the_flags_that_help() -> None:
    earlier = results([5.0]) | {"request": {"extents": 7}}
    compare.require_comparable(earlier, 1000, 7, "old.json")
    with pytest.raises(errors.RequestInvalidError, match=r"1000 bytes in 7 extents.*2000.*--bytes=1000 --extents=7"):
        compare.require_comparable(earlier, 2000, None, "old.json")


def test_the_setting_for_the_drive_is_that_of_the_earlier_run() -> None:
    assert compare.drive_of(None) is None
    assert compare.drive_of(results([5.0])) == compare.Setting(1 << 20, 8, 4)
    chosen = results([5.0]) | {"drive": {"chunk_bytes": 65536, "queue_depth": 2, "threads": 1}}
    assert compare.drive_of(chosen) == compare.Setting(65536, 2, 1)
    assert compare.drive_of(results([5.0], cache="warm")) is None
