"""Which ceiling bounds a case, what counts as cold, and how results reach the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coldsnap import errors
from coldsnap._bench import cache, cases, ceilings, results, threads

SETTING = cases.Setting(4 << 20, 4, 2)


def ceiling(family: str, count: int, *samples: float, mixed: bool = False) -> ceilings.Ceiling:
    return ceilings.Ceiling(family, count, lambda _: 1.0, list(samples), mixed)


def case(route: str, wanted: str, *residency: float) -> cases.Case:
    restorer: Any = None  # only its settings are looked at
    return cases.Case(restorer, route, wanted, "crc32", SETTING, residency_before=list(residency))


DRIVE = [ceiling("raw_direct_read", 1, 1e9, 3e9, 2e9), ceiling("raw_buffered_read", 4, 1.5e9)]
CACHE = [ceiling("page_cache_read", 2, 15e9), ceiling("page_cache_read", 1, 8e9)]
LINK = [ceiling("pinned_h2d", 1, 55e9), ceiling("pinned_d2h", 1, 56e9)]


@pytest.mark.parametrize(
    ("route", "wanted", "residency", "found", "bound"),
    [
        ("direct", "cold", [0.0], DRIVE + CACHE, "raw_direct_read.t1"),
        ("buffered", "cold", [0.0], DRIVE + CACHE, "raw_direct_read.t1"),
        ("direct", "warm", [1.0], DRIVE + CACHE + LINK, "raw_direct_read.t1"),
        ("buffered", "warm", [1.0], DRIVE + CACHE, "page_cache_read.t2"),
        ("buffered", "warm", [1.0], DRIVE + CACHE + LINK, "pinned_h2d.t1"),
        ("buffered", "cold", [0.5], DRIVE + CACHE, "page_cache_read.t2"),
        ("direct", "cold", [1.0], CACHE, "page_cache_read.t2"),
    ],
)
def test_the_ceiling_of_a_case(route: str, wanted: str, residency: list[float], found: Any, bound: str) -> None:
    chosen = cases.bound_of(case(route, wanted, *residency), found)
    assert chosen is not None
    assert chosen.name == bound


def test_a_mixed_ceiling_bounds_nothing_and_says_so() -> None:
    mixed = ceiling("raw_direct_read", 4, 9e9, mixed=True)
    assert mixed.name == "raw_direct_read.t4.mixed"
    assert ceilings.best([mixed, *DRIVE], "raw_direct_read") is DRIVE[0]
    assert ceilings.best([mixed], "raw_direct_read") is None


@pytest.mark.parametrize(
    ("wanted", "residency", "state"),
    [
        ("cold", [0.0, 0.0005], "cold"),
        ("cold", [0.0, 0.002], "mixed"),
        ("warm", [1.0, 0.9995], "warm"),
        ("warm", [1.0, 0.9], "mixed"),
    ],
)
def test_one_unproved_sample_makes_a_case_mixed(wanted: str, residency: list[float], state: str) -> None:
    assert case("buffered", wanted, *residency).cache == state


def test_a_refused_route_is_noted_and_not_tried_again() -> None:
    calls = []

    def refuse(_: ceilings.Ceiling) -> float:
        calls.append(1)
        raise errors.RouteUnavailableError("open: Invalid argument")

    refused = ceilings.Ceiling("raw_direct_read", 1, refuse)
    refused.sample()
    refused.sample()
    assert (refused.refused, len(calls), refused.samples) == ("open: Invalid argument", 1, [])


@pytest.mark.parametrize(("copying", "stage"), [(4, "digest"), (1, "copy")])
def test_the_limiting_stage_counts_copies_per_copying_thread_and_no_ring(copying: int, stage: str) -> None:
    stages_s = {"open": 0.1, "ring": 9.0, "read": 1.0, "digest": 1.2, "copy": 3.0, "drain": 0.0, "publish": 0.0}
    assert cases.limiting_stage({"stages_s": stages_s}, copying) == stage


def test_threads_for_small_and_large_machines() -> None:
    assert ceilings.thread_ladder(1) == [1, 2]
    assert ceilings.thread_ladder(2) == [1, 2, 4]
    assert ceilings.thread_ladder(3) == [1, 2, 4]
    assert ceilings.thread_ladder(16) == [1, 2, 4, 8, 16]


def test_a_file_becomes_warm_and_cold_where_it_can(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 << 20))
    assert cache.is_warm(cache.make_warm(path))
    left = cache.make_cold(path)
    assert left == cache.residency(path)
    assert cache.is_warm(cache.make_warm(path))


def test_a_failing_thread_ends_them_all() -> None:
    def work(index: int, stopped: threads.Stopped) -> None:
        if index == 2:
            raise ValueError("third")
        while not stopped():
            pass

    with pytest.raises(ValueError, match="third"):
        threads.run(4, work)


def test_a_failed_write_keeps_the_old_results(tmp_path: Path) -> None:
    results.write_json(tmp_path, "results.json", {"format": 1, "cases": [{"a": 1}, {"a": 2}], "none": []})
    before = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(before) == {"format": 1, "cases": [{"a": 1}, {"a": 2}], "none": []}
    assert before.count("\n") == 8
    with pytest.raises(ValueError, match="JSON"):
        results.write_json(tmp_path, "results.json", {"format": float("nan")})
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]
    assert (tmp_path / "results.json").read_text(encoding="utf-8") == before


def test_results_in_a_place_that_is_no_folder_are_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.Error, match="give another --output"):
        results.write_json(tmp_path / "file", "results.json", {"format": 1})
