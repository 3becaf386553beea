"""A pace holds back what is ahead of it, and what was late may not make up for all of it."""

import pytest

from coldsnap.adapters.pace import Pace


class Clock:
    """Seconds that pass only where somebody waits, or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_come_at_the_rate() -> None:
    clock = Clock()
    pace = Pace(1000, clock.pass_, clock)
    for done in range(0, 10_001, 500):
        pace(done, 10_000)
        clock.pass_(0.1)  # the work itself
    assert clock.now == pytest.approx(100.0 + 10.0 + 0.1)


def test_what_is_slower_is_not_held_back() -> None:
    clock = Clock()
    pace = Pace(1000, lambda _: pytest.fail("it waited"), clock)
    for done in range(0, 5001, 500):
        pace(done, 5000)
        clock.pass_(0.6)


def test_a_long_pause_gives_no_long_burst() -> None:
    clock = Clock()
    pace = Pace(1000, clock.pass_, clock)
    clock.pass_(60)
    begin = clock.now
    for done in range(0, 10_001, 1000):
        pace(done, 10_000)
    assert clock.now - begin == pytest.approx(9.0)  # a second's worth of ten
