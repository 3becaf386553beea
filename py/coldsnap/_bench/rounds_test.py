"""Who gets a sample when time is short; the clock is the test's own."""

from __future__ import annotations

import pytest

from coldsnap._bench import rounds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Step:
    """Takes so many seconds a sample."""

    def __init__(self, clock: Clock, key: str, seconds: float, nbytes: int = 1, kin: str = "kin") -> None:
        self.key = self.label = key
        self.kin, self.nbytes, self.refused, self.taken = kin, nbytes, "", 0
        self._clock, self._seconds = clock, seconds

    def sample(self) -> None:
        self._clock.now += self._seconds
        self.taken += 1


def silent(label: str) -> None:
    pass


def run(budget: rounds.Budget, steps: list[Step], samples: range, share: float = 1.0) -> list[int]:
    for _ in budget.rounds(steps, samples, share, silent):
        pass
    return [step.taken for step in steps]


def test_without_minutes_everything_gets_the_least() -> None:
    clock = Clock()
    assert run(rounds.Budget(None, clock), [Step(clock, "a", 50), Step(clock, "b", 50)], range(3, 5), 0.1) == [3, 3]


def test_a_share_that_is_not_over_gives_the_most() -> None:
    clock = Clock()
    assert run(rounds.Budget(None, clock), [Step(clock, "a", 1), Step(clock, "b", 1)], range(3, 5), 0.5) == [5, 5]


def test_what_may_be_left_out_does_not_begin_after_its_share() -> None:
    clock = Clock()
    budget = rounds.Budget(None, clock)
    clock.now += 31
    assert run(budget, [Step(clock, "a", 1)], range(0, 5), 0.5) == [0]


def test_with_minutes_nothing_begins_that_would_end_later() -> None:
    clock = Clock()
    budget = rounds.Budget(1.0, clock)
    assert run(budget, [Step(clock, "a", 25), Step(clock, "b", 1, kin="other")], range(5, 5)) == [2, 5]
    assert clock.now == 155.0
    assert budget.left_s == 5.0


def test_what_a_kind_costs_is_known_per_byte() -> None:
    clock = Clock()
    budget = rounds.Budget(1.0, clock)
    first, twice, thrice = (Step(clock, name, 10.0 * size, size) for name, size in (("a", 1), ("b", 2), ("c", 3)))
    assert budget.take(first, silent)
    assert budget.cost_s(twice) == 20.0
    assert budget.take(twice, silent)
    assert not budget.take(thrice, silent)  # 30 s are left, and it would take all of them
    assert thrice.taken == 0


def test_a_part_can_be_given_less_than_all() -> None:
    clock = Clock()
    budget = rounds.Budget(1.0, clock)
    with budget.within(10.0):
        assert run(budget, [Step(clock, "a", 4)], range(9, 9)) == [2]
    assert budget.left_s == 52.0


def test_samples_of_an_earlier_run_are_not_taken_again() -> None:
    clock = Clock()
    done, begun = Step(clock, "a", 1), Step(clock, "b", 1)
    done.taken, begun.taken = 5, 2
    run(rounds.Budget(None, clock), [done, begun], range(5, 5))
    assert (done.taken, begun.taken, clock.now) == (5, 5, 103.0)


@pytest.mark.parametrize("refused", ["O_DIRECT: Invalid argument"])
def test_what_does_not_work_costs_no_more_time(refused: str) -> None:
    clock = Clock()
    step = Step(clock, "a", 1)
    step.refused = refused
    assert run(rounds.Budget(1.0, clock), [step], range(3, 3)) == [0]
    assert clock.now == 100.0
