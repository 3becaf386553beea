"""Ranks that talk while their engine serves, each in a thread of its own.

They have the store by which the engine's processes found each other, and the engine uses it too. A client of that store
does one thing at a time, so nobody waits inside it here: each call is a short one, and what is not there yet is asked for
again. Neither side can keep the other from going on.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Protocol

from coldsnap import errors

_LOOK_S = 0.1


class Keys(Protocol):
    """As much of ``torch.distributed.Store`` as this takes; none of these calls waits for a key."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class BesideRanks:
    """The ranks of one engine, as `coldsnap.adapters.verdict.Ranks`, and orders that rank 0 gives the others.

    Args:
        store: That all ranks have.
        name: Of all that is said here; the same in every rank, and never used before.
        rank: Of this process.
        size: How many there are.
        sleep: Waits so many seconds; for tests.
    """

    def __init__(
        self, store: Keys, name: str, rank: int, size: int, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.rank, self.size = rank, size
        self._store, self._name, self._sleep = store, name, sleep
        self._rounds = itertools.count()

    def gather(self, text: str, timeout_s: float) -> list[str]:
        """What each rank said, by rank; every rank calls it in the same order.

        Raises:
            TimedOutError: A rank said nothing in time; the message has its number.
        """
        said = f"{self._name}/said/{next(self._rounds)}"
        self._store.set(f"{said}/{self.rank}", text)
        found, end = [], time.monotonic() + timeout_s
        for rank in range(self.size):
            while not self._store.check([f"{said}/{rank}"]):
                if time.monotonic() > end:
                    raise errors.TimedOutError(
                        f"hear {self.size} ranks: rank {rank} said nothing within {timeout_s:.0f} s",
                        remedy="look for its failure in its own log",
                    )
                self._sleep(_LOOK_S)
            found.append(self._store.get(f"{said}/{rank}").decode())
        return found

    def order(self, number: int, text: str) -> None:
        """Rank 0: say to the others what to do next; ``number`` counts from 0."""
        self._store.set(f"{self._name}/order/{number}", text)

    def ordered(self, number: int) -> str | None:
        """What rank 0 said, once it has."""
        key = f"{self._name}/order/{number}"
        return self._store.get(key).decode() if self._store.check([key]) else None
