"""Traces of the calibration's restores, from the native threads to the JSON that viewers read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from coldsnap import _native, errors
from coldsnap._bench import cases
from coldsnap._bench.arena import MIN_BYTES, HostArena, pieces_of

SETTING = cases.Setting(chunk_bytes=65536, queue_depth=4, threads=2)


@pytest.fixture
def restorer(tmp_path: Path) -> cases.Restorer:
    pieces = pieces_of(MIN_BYTES)
    memory = HostArena(pieces)
    memory.fill(seed=1, workers=1)
    tensors: list[tuple[Any, ...]] = []
    for number, piece in enumerate(pieces):
        address = memory.address + piece.offset
        tensors.append((piece.name, "U8", [piece.nbytes], [1], address, address, piece.nbytes, number, "", []))
    folder = tmp_path / "artifact"
    _native.write_artifact(str(folder), tensors, "{}", "{}", "{}")
    return cases.Restorer(folder, pieces, memory, "host", 1 << 30)


def events_of(trace: _native.Trace, phase: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(trace.to_json())["traceEvents"]
    return [event for event in events if event["ph"] == phase]


def test_a_trace_has_every_byte_in_time_and_on_threads_with_names(restorer: cases.Restorer) -> None:
    trace = _native.Trace()
    begun_us = time.monotonic_ns() / 1000
    report = restorer.run("buffered", "crc32", SETTING, trace=trace)
    ended_us = time.monotonic_ns() / 1000
    spans = events_of(trace, "X")
    total = {name: sum(span["args"]["bytes"] for span in spans if span["name"] == name) for name in ("read", "send")}
    assert total == {"read": report["read_bytes"], "send": report["payload_bytes"]}
    assert report["payload_bytes"] == MIN_BYTES
    for span in spans:
        assert begun_us <= span["ts"] + 0.001  # a digit of rounding
        assert span["ts"] + span["dur"] <= ended_us + 0.001
    named = {event["tid"]: event["args"]["name"] for event in events_of(trace, "M") if event["name"] == "thread_name"}
    assert {span["tid"] for span in spans} == named.keys()
    assert list(named.values()) == ["caller", "read and send 0", "read and send 1"]
    assert trace.dropped == 0


def test_a_failed_restore_is_traced_up_to_its_end(restorer: cases.Restorer) -> None:
    restorer.blob.chmod(0o644)
    with restorer.blob.open("r+b") as blob:
        blob.seek(MIN_BYTES // 2)
        blob.write(bytes(MIN_BYTES // 4))
    trace = _native.Trace()
    with pytest.raises(errors.DataLossError):
        restorer.run("buffered", "crc32", SETTING, trace=trace)
    names = [span["name"] for span in events_of(trace, "X")]
    assert "read" in names
    assert "poison" in names


def test_without_a_trace_nothing_is_kept(restorer: cases.Restorer) -> None:
    trace = _native.Trace()
    restorer.run("buffered", "crc32", SETTING, trace=trace)
    before = len(events_of(trace, "X"))
    restorer.run("buffered", "crc32", SETTING)
    assert len(events_of(trace, "X")) == before
    restorer.run("buffered", "crc32", SETTING, trace=trace)  # a trace takes in several
    assert len(events_of(trace, "X")) > before
