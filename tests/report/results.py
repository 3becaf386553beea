"""Results as a calibration writes them, made on the spot."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20


def case(**changed: Any) -> dict[str, Any]:
    """One case: a direct restore from the drive, but for what is ``changed``."""
    found: dict[str, Any] = {
        "operation": "hydrate",
        "route": "direct",
        "cache": "cold",
        "digest": "crc32",
        "place": "device",
        "chunk_bytes": 4 * MIB,
        "queue_depth": 8,
        "threads": 4,
        "bytes_per_second": 2_000_000_000,
        "ceiling": "raw_direct_read.t4",
        "ratio": 0.8,
        "limiting_stage": "read",
    }
    found |= changed
    seconds = (1 << 30) / found["bytes_per_second"]
    samples = {"samples_s": [seconds, seconds * 1.1, seconds * 0.9], "median_s": seconds, "residency_before": [0.0] * 3}
    return samples | found


def document(*cases: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A results.json of these cases, of a machine that does not exist."""
    machine = {
        "cpu": "CPU",
        "architecture": "x86_64",
        "cores": 16,
        "memory_bytes": 128 << 30,
        "kernel": "6.1",
        "device": "cuda:0",
        "gpu": {"name": "GPU", "driver": "1.2"},
        "file_system": "ext4",
        "drive": {"name": "vda", "model": None, "rotational": False},
        "python": "3.11.2",
        "versions": {"numpy": "2.0", "coldsnap": "0.1.0"},
    }
    rate = {"unit": "bytes_per_second", "samples": [2_400_000_000, 2_600_000_000], "median": 2_500_000_000}
    ring = {"name": "ring_ready.4194304x8", "unit": "seconds", "samples": [0.02, 0.03], "median": 0.025}
    ceilings = [
        {"name": "raw_direct_read.t4", **rate},
        {"name": "pinned_h2d.t1", **rate, "median": 55_000_000_000},
        ring,
    ]
    found = {"format": 1, "commit": "0" * 40, "machine": machine, "seed": 0, "payload_bytes": 1 << 30}
    return found | {"ceilings": ceilings, "cases": list(cases)} | more


def sweep() -> list[dict[str, Any]]:
    """A grid of chunk x depth x threads, in which 4 MiB x 8 with 8 threads is the fastest."""
    found = []
    for chunk in (1, 4, 16):
        for depth in (8, 1, 2):
            for threads in (8, 1):
                rate = 10**8 * depth * threads // (1 + abs(chunk - 4))
                found.append(case(chunk_bytes=chunk * MIB, queue_depth=depth, threads=threads, bytes_per_second=rate))
    return found


def trace() -> dict[str, Any]:
    """A trace of one restore from the page cache, by two threads."""
    spans = [
        (1, "open", 0, 10),
        (1, "move", 10, 980),
        (2, "read", 20, 400),
        (2, "send", 400, 410),
        (3, "read", 20, 900),
        (1, "publish", 980, 1000),
    ]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"name": lane}}
        for tid, lane in ((1, "caller"), (2, "read and send 0"), (3, "read and send 1"))
    ]
    for tid, name, begin, end in spans:
        events.append({"ph": "X", "name": name, "pid": 7, "tid": tid, "ts": begin, "dur": end - begin, "args": {}})
    return {"displayTimeUnit": "ms", "traceEvents": events}
