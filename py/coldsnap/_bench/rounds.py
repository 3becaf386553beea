"""In which order samples are taken, and for how long: in turns, round by round, until enough or until time is up."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from coldsnap._bench import workspace


class Step(Protocol):
    """Something to take samples of."""

    @property
    def label(self) -> str: ...

    def sample(self) -> None: ...


class Measured(Step, Protocol):
    """A step that a calibration keeps: `kin` is what it costs as much as per byte, `taken` its samples of this run."""

    refused: str

    @property
    def key(self) -> str: ...

    @property
    def kin(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def taken(self) -> int: ...


Advance = Callable[[str], None]


@contextlib.contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Show a bar on stderr if that is a terminal.

    Yields:
        A function to call with the name of each of `total` steps as it begins.
    """
    if not sys.stderr.isatty():
        yield lambda label: None
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = False

        def advance(label: str) -> None:
            nonlocal begun
            bar.update(task, description=label, advance=1 if begun else 0)
            begun = True

        yield advance


def run_rounds(steps: Sequence[Step], count: int, advance: Advance) -> None:
    """Take `count` samples of each step, one of each in turn: a drive that changes its pace changes it for all alike."""
    for _ in range(count):
        for step in steps:
            workspace.go_on()
            advance(step.label)
            step.sample()


class Budget:
    """The time of one calibration: what a step will take is known from the last one of its kind.

    With `minutes` no step begins that would end later. Without, everything gets its least number of samples, and shares
    are those of one minute.
    """

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.minutes = minutes
        self._clock = clock
        self._begun = clock()
        self._s = 60 * (1.0 if minutes is None else minutes)
        self._hard = minutes is not None
        self._took_s: dict[str, float] = {}
        self._per_byte_s: dict[str, float] = {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._begun

    @property
    def left_s(self) -> float:
        """Seconds that are left of the minutes, whether they bind or not."""
        return self._s - self.elapsed_s

    def share_over(self, share: float) -> bool:
        """Tell whether that share of the time has passed."""
        return self.elapsed_s > share * self._s

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let no step begin that would end more than so many seconds from here, where the minutes bind."""
        whole = self._s
        self._s = min(whole, self.elapsed_s + seconds)
        try:
            yield
        finally:
            self._s = whole

    def cost_s(self, step: Measured) -> float:
        """Predict how long a sample takes with all that belongs to it; 0 where nothing like it was measured."""
        return self._took_s.get(step.key, self._per_byte_s.get(step.kin, 0.0) * step.nbytes)

    def take(self, step: Measured, advance: Advance) -> bool:
        """Take one sample; False if there is no time for it, or the step does not work here."""
        workspace.go_on()
        if step.refused or (self._hard and self.cost_s(step) >= self.left_s):
            return False
        advance(step.label)
        begun = self._clock()
        step.sample()
        self._took_s[step.key] = self._clock() - begun
        if step.nbytes:
            self._per_byte_s[step.kin] = self._took_s[step.key] / step.nbytes
        return not step.refused

    def rounds(self, steps: Sequence[Measured], samples: range, share: float, advance: Advance) -> Iterator[None]:
        """Take one sample of each step in turn, until each has the most; yields after every round.

        Args:
            steps: What is compared with one another.
            samples: Least and most rounds, as ``range(least, most)``.
            share: Of the time; once it has passed the least is enough.
            advance: From `progress`.
        """
        for taken in range(samples.stop):
            if taken >= samples.start and self.share_over(share):
                break
            for step in steps:
                if step.taken <= taken:
                    self.take(step, advance)
            yield
