"""Holding a capture back, so that what is captured meanwhile serves others as before."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST_CREDIT_S = 1.0  # after a pause of its own, a full drive's say, a capture catches up for no longer than that


class Pace:
    """Call it with (bytes done, bytes in total), as a capture does: it returns once so many bytes may have been moved.

    It holds back whoever calls it, so it paces the plain Python writer, and not the threads of the native core.

    Args:
        bytes_per_second: The most on average.
        wait: Waits so many seconds, or until somebody wants the capture to stop.
        clock: Seconds, for tests.
    """

    def __init__(
        self, bytes_per_second: int, wait: Callable[[float], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._wait, self._clock = bytes_per_second, wait, clock
        self._due, self._done = clock(), 0

    def __call__(self, done: int, total: int) -> None:
        self._due = max(self._due, self._clock() - _MOST_CREDIT_S) + (done - self._done) / self._rate
        self._done = done
        ahead_s = self._due - self._clock()
        if ahead_s > 0:
            self._wait(ahead_s)
