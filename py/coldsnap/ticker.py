"""What a long operation calls while it works: tells the caller how far it is, and learns whether to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from coldsnap import errors

_TICK_S = 0.05  # progress is called at most this often, but for the first and the last time


def check_arguments(operation: str, progress: object, cancel: object) -> None:
    """Refuse what is no progress function or no event.

    Raises:
        RequestInvalidError: One of them is of the wrong kind.
    """
    if progress is not None and not callable(progress):
        raise errors.RequestInvalidError(
            f"{operation}: progress is a {type(progress).__name__}",
            remedy="give a function of (done_bytes, total_bytes)",
        )
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise errors.RequestInvalidError(
            f"{operation}: cancel is a {type(cancel).__name__}", remedy="give a threading.Event"
        )


class Ticker:
    """Call it with (bytes done, bytes in total); True means stop.

    Args:
        progress: Called at most 20 times a second, and for the first and the last byte.
        cancel: Set by the caller to stop.
    """

    def __init__(self, progress: Callable[[int, int], object] | None, cancel: threading.Event | None) -> None:
        self._progress = progress
        self._cancel = cancel
        self._reported = -1
        self._next = 0.0

    def __call__(self, done: int, total: int) -> bool:
        if self.cancelled:
            return True
        now = time.monotonic()
        if self._progress is not None and done > self._reported and (now >= self._next or done == total):
            self._reported, self._next = done, now + _TICK_S
            self._progress(done, total)
        return self.cancelled  # the callback may just have asked for it

    @property
    def cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()
