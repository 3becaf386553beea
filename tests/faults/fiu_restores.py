"""Started by fiu_test.py under fiu-run: restores an artifact again and again while libfiu fails some of its calls.

Takes the artifact, the backend, how many restores, libfiu's name of the point and the probability; prints a JSON object
that says how the restores ended. Faults are on during a restore alone, or Python itself would not come up.
"""

import ctypes
import json
import os
import random
import sys
from typing import Any

import numpy as np

import coldsnap

POISON, UNTOUCHED = 0xFF, 0x55
SEED = 7


class Decider:
    """Tells libfiu which calls to fail, so that they are counted and a seed repeats them (up to the threads' order)."""

    def __init__(self, point: str, probability: float) -> None:
        self._fiu = ctypes.CDLL("libfiu.so.0")  # the one that fiu-run has loaded
        self._point = point.encode()
        self._probability = probability
        self._random = random.Random(SEED)
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._decide)
        self.asked = 0
        self.fired = 0

    def __enter__(self) -> None:
        if self._fiu.fiu_enable_external(self._point, 1, None, 0, self._callback) != 0:
            raise RuntimeError(f"libfiu does not take {self._point!r}")

    def __exit__(self, *_: object) -> None:
        self._fiu.fiu_disable(self._point)

    def _decide(self, *_: object) -> int:
        self.asked += 1
        fails = self._random.random() < self._probability
        self.fired += fails
        return int(fails)


def descriptors() -> int:
    """How many the process has open."""
    return len(os.listdir("/proc/self/fd"))


def verdict(
    destinations: dict[str, np.ndarray], expected: dict[str, bytes], error: coldsnap.Error | None
) -> str | None:
    """What is wrong after a restore; None when nothing is."""
    if error is None:
        return None if all(destinations[name].tobytes() == expected[name] for name in expected) else "other bytes"
    if not str(error) or not error.stage:
        return f"the error {error!r} has no message or no stage"
    values = {int(byte) for tensor in destinations.values() for byte in np.unique(tensor)}
    return None if values in ({POISON}, {UNTOUCHED}) else f"destinations are half done after {error}"


def main(path: str, backend: str, runs: str, point: str, probability: str) -> None:
    """Runs the restores and prints how they ended."""
    decider = Decider(point, float(probability))
    artifact = coldsnap.open(path)
    expected = {tensor: np.empty(artifact[tensor].shape, np.uint8) for tensor in artifact}
    coldsnap.hydrate(artifact, expected, backend="buffered")
    right = {tensor: expected[tensor].tobytes() for tensor in expected}
    result: dict[str, Any] = {"succeeded": 0, "failed": 0, "wrong": [], "messages": {}}
    result["descriptors_before"] = descriptors()
    for _ in range(int(runs)):
        destinations = {tensor: np.full(len(right[tensor]), UNTOUCHED, np.uint8) for tensor in right}
        error = None
        settings = {"backend": backend, "chunk_bytes": 1 << 16, "queue_depth": 2, "read_threads": 2}
        try:
            with decider:
                coldsnap.hydrate(artifact, destinations, **settings)
        except coldsnap.Error as caught:
            error = caught
        result["failed" if error else "succeeded"] += 1
        if error:
            shown = str(error).partition(path)[2]
            result["messages"][shown] = result["messages"].get(shown, 0) + 1
        if wrong := verdict(destinations, right, error):
            result["wrong"].append(wrong)
    result["descriptors_after"] = descriptors()
    result["asked"], result["fired"] = decider.asked, decider.fired
    # A last restore without faults: whatever failed before, nothing was kept.
    destinations = {tensor: np.full(len(right[tensor]), UNTOUCHED, np.uint8) for tensor in right}
    coldsnap.hydrate(artifact, destinations, backend=backend)
    if wrong := verdict(destinations, right, None):
        result["wrong"].append(wrong)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
