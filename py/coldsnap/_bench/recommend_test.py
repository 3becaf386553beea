"""What is recommended of results of our own making, and the reasons that are given."""

from __future__ import annotations

from typing import Any

import pytest

from coldsnap._bench import best, recommend

DRIVE = {"chunk_bytes": 1 << 20, "queue_depth": 16, "threads": 8}
OTHER = {"chunk_bytes": 512 << 10, "queue_depth": 4, "threads": 2}
PLAIN = {"chunk_bytes": 4 << 20, "queue_depth": 4, "threads": 2}


def case(route: str, cache: str, setting: dict[str, int], *rates: float, **more: Any) -> dict[str, Any]:
    row = {"operation": "hydrate", "route": route, "cache": cache, "digest": "crc32+sha256", "place": "host"}
    row |= setting | {"samples_s": [1e9 / rate for rate in rates], "bytes_per_second": sorted(rates)[len(rates) // 2]}
    row |= {"ceiling": "raw_direct_read.t4", "ratio": 0.5, "payload_bytes": 10**9, "direct": None}
    return row | {"extents": 32, "asked": {"cache": cache, "place": "auto"}} | more


def results(*rows: dict[str, Any]) -> dict[str, Any]:
    request = {"least": 3, "setting": PLAIN, "drive": DRIVE}
    return {"payload_bytes": 10**9, "request": request, "cases": list(rows), "ceilings": []}


def only(*rows: dict[str, Any]) -> dict[str, Any]:
    (entry,) = recommend.recommendations(results(*rows))
    return entry


def test_a_setting_replaces_the_default_only_if_it_is_clearly_faster() -> None:
    default = case("direct", "cold", DRIVE, 2e9, 2.1e9, 1.9e9)
    noisy = case("direct", "cold", OTHER, 3e9, 2.5e9, 1.8e9)
    better = case("direct", "cold", OTHER, 3e9, 2.5e9, 2.8e9)
    found = only(default, noisy)
    assert found["threads"] == 8
    assert found["why"] == "no other setting was clearly faster than the default (1 measured); 50% of raw direct read"
    found = only(default, better)
    assert found["threads"] == 2
    assert found["why"].startswith(
        "1.40 times (1.19 to 1.58) as fast as the default chunk 1 MiB, depth 16, 8 threads; "
    )


def test_routes_are_compared_at_their_best() -> None:
    found = only(
        case("buffered", "cold", PLAIN, 1e9, 1e9, 1e9),
        case("direct", "cold", DRIVE, 2e9, 2e9, 2e9),
        case("direct", "cold", OTHER, 1e9, 1e9, 1e9),
    )
    assert (found["route"], found["threads"]) == ("direct", 8)
    assert found["why"].startswith("2.00 times (2.00 to 2.00) as fast as buffered; ")


@pytest.mark.parametrize(
    "more",
    [
        {"samples_s": [0.1]},
        {"digest": "none"},
        {"payload_bytes": 10**8},
        {"operation": "verify"},
    ],
    ids=str,
)
def test_few_samples_fewer_digests_and_other_data_are_never_chosen(more: dict[str, Any]) -> None:
    slow = case("buffered", "warm", DRIVE, 1e9, 1e9, 1e9)
    found = only(slow, case("buffered", "warm", OTHER, 9e9, 9e9, 9e9, **more))
    assert found["chunk_bytes"] == DRIVE["chunk_bytes"]


def test_each_state_is_asked_and_what_was_not_proved_only_alone() -> None:
    cold = case("direct", "cold", DRIVE, 2e9, 2e9, 2e9)
    mixed = case("buffered", "mixed", PLAIN, 9e9, 9e9, 9e9)
    half = case("auto", "half", PLAIN, 3e9, 3e9, 3e9, digest="crc32", ratio=None, direct=DRIVE)
    capture = case("direct", "new", DRIVE, 1e9, 1e9, 1e9, operation="capture")
    found = recommend.recommendations(results(cold, mixed, half, capture))
    assert [(each["operation"], each["cache"], each["route"]) for each in found] == [
        ("hydrate", "cold", "direct"),
        ("hydrate", "half", "auto"),
        ("capture", "new", "direct"),
    ]
    assert found[1]["why"] == "the only one measured"
    assert only(mixed)["cache"] == "mixed"


def test_lines_for_people_have_the_reasons_below() -> None:
    lines = recommend.lines_of(only(case("buffered", "warm", PLAIN, 1e9, 1e9, 1e9)))
    assert lines == [
        "best restore warm: buffered, chunk 4 MiB, depth 4, 2 threads: 1.00 GB/s",
        "  50% of raw direct read",
    ]


def test_lines_for_people_fit_80_columns() -> None:
    default = case("direct", "cold", DRIVE, 1e8, 1e8, 1e8)
    lines = recommend.lines_of(only(default, case("direct", "cold", OTHER, 2e9, 2e9, 2e9)))
    assert lines[1:3] == [
        "  20.00 times (20.00 to 20.00) as fast as the default chunk 1 MiB, depth 16, 8",
        "    threads",
    ]


def test_the_profile_has_what_is_recommended(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(best.profile, "update", lambda entry, environ: written.append(entry))
    document = results(
        case("direct", "cold", DRIVE, 2e9, 2.1e9, 1.9e9),
        case("direct", "cold", OTHER, 3e9, 2.5e9, 1.8e9),
        case("buffered", "warm", PLAIN, 3e9, 3e9, 3e9),
    )
    assert best.write_profile(tmp_path, "host", document, "0.1.0") == []
    (entry,) = written
    assert (entry.direct.read_threads, entry.direct.queue_depth) == (8, 16)
    assert entry.buffered.chunk_bytes == 4 << 20
