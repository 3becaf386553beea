"""The line of a start: how much, how fast, by which route and why, verified how."""

import types
from typing import Any

import pytest

from coldsnap.adapters.vllm import lines


def receipt(routes: list[str], reasons: list[str], mode: str = "crc32+sha256") -> Any:
    return types.SimpleNamespace(
        routes=[{"route": route} for route in routes],
        reasons=[{"code": code, "detail": ""} for code in reasons],
        verify={"mode": mode, "place": "host"},
    )


@pytest.mark.parametrize(
    ("found", "nbytes", "seconds", "line"),
    [
        (
            receipt(["buffered"], ["adapter_default", "resident"]),
            int(15.3 * 2**30),
            0.31,
            "coldsnap: restored 15.3 GiB in 0.31 s (53 GB/s, route buffered: resident) verified crc32+sha256",
        ),
        (
            receipt(["direct", "buffered"], ["mixed", "mixed"], "crc32"),
            5 << 20,
            0.5,
            "coldsnap: restored 5.0 MiB in 0.50 s (0.0105 GB/s, route direct and buffered: mixed) verified crc32",
        ),
        (
            receipt(["gds"], ["explicit", "preverified"], "none"),
            1000,
            0.0,
            "coldsnap: restored 1000 bytes in 0.00 s (at once, route gds: explicit) digests left out: preverified",
        ),
    ],
)
def test_restored(found: Any, nbytes: int, seconds: float, line: str) -> None:
    assert lines.restored(found, nbytes, seconds) == line


def test_captured() -> None:
    line = lines.captured(receipt(["direct"], ["adapter_default"]), 3 << 30, 2.0)
    assert line == "coldsnap: captured 3.0 GiB in 2.00 s (1.61 GB/s, route direct); the next start restores"
    line = lines.captured(receipt(["direct"], []), 3 << 30, 2.0, at_once=True)
    assert line.endswith("at the end of loading, since the finished weights can't be captured; the next start restores")


def test_planned() -> None:
    assert lines.planned("ready") == "coldsnap: the weights will be captured once the engine is ready"
    assert lines.planned("asked") == "coldsnap: the weights will be captured when the control socket is asked to"
