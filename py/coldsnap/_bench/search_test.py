"""The search finds what a machine of our own making is best at, in few samples, and goes on from the ones it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from coldsnap._bench import cases, search
from coldsnap._bench.cases import Measured, Setting

LADDER = [1, 2, 4, 8, 16]
CAP = 512 << 20


class Memory:
    device = "host"
    payload_bytes = 1 << 30
    extents = 1


@dataclass
class Fake(Measured):
    """A case whose time follows from its setting."""

    operation = "hydrate"
    seconds: Callable[[Setting], float] = lambda setting: 1.0
    counter: list[str] | None = None

    def _sample(self) -> None:
        self.samples_s.append(self.seconds(self.setting))
        if self.counter is not None:
            self.counter.append(self.key)


def bowl(best: Setting) -> Callable[[Setting], float]:
    """Seconds that grow with the distance from the best setting, in each direction by itself."""

    def seconds(setting: Setting) -> float:
        pairs = [(setting.chunk_bytes, best.chunk_bytes), (setting.threads, best.threads)]
        pairs.append((setting.queue_depth / setting.threads, best.queue_depth / best.threads))
        return 1.0 + sum(abs(math.log2(one / other)) for one, other in pairs)

    return seconds


class Machine:
    """Trials by key, and how many samples may still be taken."""

    def __init__(self, best: Setting, left: int = 10_000) -> None:
        self.pool: dict[str, Measured] = {}
        self.taken: list[str] = []
        self.left = left
        self.seconds = bowl(best)
        self.goal = search.Goal("goal", Setting(4 << 20, 4, 2), self._trial)

    def _trial(self, setting: Setting, at_most: int | None) -> Measured:
        subject: Any = Memory()
        return Fake(
            subject, "direct", "cold", "crc32", setting, at_most=at_most, seconds=self.seconds, counter=self.taken
        )

    def adopt(self, case: Measured) -> Measured:
        return self.pool.setdefault(case.key, case)

    def take(self, case: Measured, count: int) -> bool:
        while case.taken < count:
            if self.left == 0:
                return False
            self.left -= 1
            case.sample()
        return True

    def search(self) -> Setting:
        return search.descend(self.goal, LADDER, CAP, self.adopt, self.take)


@pytest.mark.parametrize("best", [Setting(1 << 20, 32, 16), Setting(32 << 20, 4, 4), Setting(256 << 10, 1, 1)])
def test_it_finds_the_best_in_a_fraction_of_the_grid(best: Setting) -> None:
    machine = Machine(best)
    assert machine.search() == best
    grid = len(search._CHUNKS) * len(LADDER) * 3 * 3  # three depths, three samples each
    assert len(machine.taken) < grid / 3


def test_the_same_samples_lead_the_same_way_and_are_not_taken_again() -> None:
    first = Machine(Setting(1 << 20, 32, 16))
    second = Machine(Setting(1 << 20, 32, 16))
    assert (first.search(), first.taken) == (second.search(), second.taken)
    count = len(first.taken)
    assert first.search() == Setting(1 << 20, 32, 16)
    assert len(first.taken) == count


@pytest.mark.parametrize("left", [0, 1, 7, 20])
def test_without_time_it_gives_what_it_has(left: int) -> None:
    machine = Machine(Setting(1 << 20, 32, 16), left)
    found = machine.search()
    assert len(machine.taken) <= left
    assert machine.seconds(found) <= machine.seconds(machine.goal.base)
    # With more time the same machine gets to the same end as one that had it at once.
    machine.left = 10_000
    assert machine.search() == Setting(1 << 20, 32, 16)


def test_no_ring_is_above_the_cap() -> None:
    machine = Machine(Setting(32 << 20, 64, 16))
    machine.search()
    assert max(each.setting.chunk_bytes * each.setting.queue_depth for each in machine.pool.values()) <= CAP


def test_halving_gives_the_most_samples_to_the_best() -> None:
    machine = Machine(Setting(1 << 20, 2, 2))
    trials = [machine.goal.trial(Setting(chunk << 20, 2, 2), None) for chunk in (8, 4, 2, 1, 16)]
    assert search.halve(trials, machine.take) is trials[3]
    assert [each.taken for each in trials] == [1, 2, 4, 4, 1]


def test_halving_passes_over_what_does_not_work() -> None:
    machine = Machine(Setting(1 << 20, 2, 2))
    good, bad = (machine.goal.trial(Setting(chunk << 20, 2, 2), None) for chunk in (8, 1))

    def take(case: Measured, count: int) -> bool:
        return case is good and machine.take(case, count)

    assert search.halve([bad, good], take) is good
    assert search.halve([bad], take) is None


def test_half_cached_the_search_is_for_the_part_of_the_drive() -> None:
    both = cases.both_ways(Setting(4 << 20, 4, 2), Setting(8 << 20, 16, 8))
    assert both == Setting(4 << 20, 4, 2, 4 << 20, 4, 8)  # no slot of its ring is larger or further away
    subject: Any = Memory()
    case = Fake(subject, "auto", "half", "crc32", both)
    assert search._sought(case) == Setting(4 << 20, 4, 8)


def test_the_sweep_covers_operations_states_and_digests() -> None:
    restorer: Any = Memory()
    restorer.pinned_max_bytes = CAP
    restorer.payload_of = lambda at_most: Memory.payload_bytes
    grid = search.sweep(restorer, restorer, LADDER, Setting(4 << 20, 4, 2))
    kinds = {(each.operation, each.route, each.wanted_cache, each.digest) for each in grid}
    wanted = {("hydrate", "direct", "cold", digest) for digest in cases.DIGESTS}
    wanted |= {("hydrate", "buffered", "warm", digest) for digest in cases.DIGESTS}
    assert kinds == wanted | {("hydrate", "auto", "half", "crc32"), ("capture", "direct", "new", "crc32+sha256")}
    shapes = {(each.setting.chunk_bytes, each.setting.queue_depth, each.setting.threads) for each in grid}
    assert {chunk for chunk, _, _ in shapes} == set(search.SWEEP_CHUNKS)
    assert all(chunk * depth <= CAP for chunk, depth, _ in shapes)
