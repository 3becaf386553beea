"""One calibration while it runs: what it has measured, what is missing, and results.json, kept after every round.

A calibration that is interrupted leaves results.json with ``complete`` false. With --resume the next one takes over the
samples of every case, if it is of the same machine, commit and request; a case that has enough is not measured again.
Ceilings are: a share of a ceiling compares numbers of the same minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from coldsnap import errors
from coldsnap._bench import results, rounds
from coldsnap._bench.cases import Measured, Setting, key_of
from coldsnap._bench.ceilings import Ceiling

NAME = "results.json"
_MAY_DIFFER = ("minutes",)
_M = TypeVar("_M", bound=Measured)


@dataclasses.dataclass
class Session:
    """A calibration's account.

    `about` has commit, machine, seed, payload_bytes and request, as in results.json; `ahead` the names of the parts that
    have not begun; `mode` is that of folders made for `output`; `whole` is the document of the finished one.
    """

    about: dict[str, Any]
    samples: range
    budget: rounds.Budget
    output: Path
    mode: int
    ahead: list[str]
    earlier: dict[str, Any] | None = None
    ceilings: list[Ceiling] = dataclasses.field(default_factory=list)
    cases: dict[str, Measured] = dataclasses.field(default_factory=dict)
    trials: dict[str, Measured] = dataclasses.field(default_factory=dict)
    ring: tuple[Setting, list[float]] | None = None
    left_out: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    whole: dict[str, Any] | None = None

    def measure(
        self,
        part: str,
        bounds: Sequence[Ceiling],
        cases: Sequence[Measured],
        share: float,
        processors: Ceiling | None = None,
    ) -> None:
        """Measure a part: its cases and the ceilings that bound them, in turns, and keep the samples after each round.

        Args:
            part: Its name, one of `ahead`.
            bounds: The ceilings.
            cases: The cases; those that an interrupted calibration finished are taken over.
            share: Of the time, after which the least number of samples is enough.
            processors: The ceiling that tells what the processors gave in these rounds.
        """
        known = [self.adopt(self.cases, each) for each in cases]
        if processors is not None:
            bounds = [*bounds, processors]
            for each in known:
                each.processors = processors.key
        open_cases = [each for each in known if each.taken < self.samples.start]
        if not bounds or open_cases or not known:
            self._run([*map(self._with_earlier, bounds), *open_cases], self.samples, share)
        else:
            self.ceilings += [each for each in map(self._with_earlier, bounds) if each.samples]
        self.ahead.remove(part)

    def measure_if_time(self, part: str, bounds: Sequence[Ceiling], cases: Sequence[Measured], share: float) -> None:
        """Measure what nothing else depends on, as far as its share of the time is not over."""
        steps = [*map(self._with_earlier, bounds), *(self.adopt(self.cases, each) for each in cases)]
        self._run(
            steps, range(self.samples.stop if self.samples.start == self.samples.stop else 0, self.samples.stop), share
        )
        self.ahead.remove(part)

    def _run(self, steps: Sequence[Any], samples: range, share: float) -> None:
        self.ceilings += [each for each in steps if isinstance(each, Ceiling)]
        with rounds.progress(len(steps) * samples.stop) as advance:
            for _ in self.budget.rounds(steps, samples, share, advance):
                self.checkpoint()
        least = max(1, self.samples.start)
        self.left_out += [each.label for each in steps if each.taken < least and not each.refused]

    def adopt(self, pool: dict[str, Measured], case: Measured) -> Measured:
        """The case of a pool (`cases` or `trials`) that has this one's key: with its samples of an earlier calibration."""
        if case.key in pool:
            return pool[case.key]
        pool[case.key] = case
        entry = self._earlier_entries("cases" if pool is self.cases else "trials").get(case.key)
        if entry is not None:
            case.samples_s = list(entry["samples_s"])
            case.residency_before = list(entry["residency_before"])
            case.limits = [entry["limiting_stage"]] * len(case.samples_s)
            case.found_place = entry["place"]
        return case

    def _earlier_entries(self, kind: str) -> dict[str, dict[str, Any]]:
        if self.earlier is None:
            return {}
        return {key_of(entry): entry for entry in self.earlier[kind]}

    def _not_met(self, kind: str, pool: dict[str, Measured]) -> list[dict[str, Any]]:
        """Entries of an earlier calibration that this one has not come to: with more time a search goes other ways."""
        return [entry for key, entry in self._earlier_entries(kind).items() if key not in pool]

    def _with_earlier(self, ceiling: Ceiling) -> Ceiling:
        for entry in self.earlier["ceilings"] if self.earlier else []:
            if entry["name"].removesuffix(".mixed") == ceiling.key:
                ceiling.samples, ceiling.earlier = list(map(float, entry["samples"])), len(entry["samples"])
                ceiling.mixed = entry["name"].endswith(".mixed")
        return ceiling

    def has(self, case: Measured, count: int) -> bool:
        """See that a trial has `count` samples; False if there is no time for them or it does not work here."""
        with rounds.progress(count) as advance:
            while case.taken < count:
                if not self.budget.take(case, advance):
                    return False
        return True

    def meet(self, goal: str, finalists: Sequence[Measured]) -> None:
        """Let the winner of a search, first, and the default take samples in the same rounds, unless they did before."""
        known = [self.adopt(self.cases, each) for each in finalists]
        if any(each.taken < self.samples.start for each in known):
            with rounds.progress(len(known) * self.samples.stop) as advance:
                for _ in range(self.samples.stop):
                    for each in known:
                        self.budget.take(each, advance)
                    self.checkpoint()
        if any(each.taken < self.samples.start and not each.refused for each in known):
            self.left_out.append(f"the finals of {goal}")

    @property
    def missing(self) -> list[str]:
        """What has fewer samples than the least, and the parts that have not begun."""
        short = [each.key for each in self.cases.values() if each.taken < self.samples.start and not each.refused]
        return [*short, *self.ahead]

    def document(self, *, complete: bool) -> dict[str, Any]:
        """What results.json has."""
        about = self.about
        base = results.results_of(
            about["commit"],
            about["machine"],
            about["seed"],
            about["payload_bytes"],
            self.ceilings,
            self.cases.values(),
            self.ring,
        )
        base["cases"] += self._not_met("cases", self.cases)
        sittings = 1 + (self.earlier["sittings"] if self.earlier else 0)
        return base | {
            "complete": complete,
            "missing": [] if complete else self.missing,
            "left_out": self.left_out,
            "sittings": sittings,
            "request": about["request"],
            "trials": [*results.entries_of(self.trials.values(), self.ceilings), *self._not_met("trials", self.trials)],
            **self.extra,
        }

    def checkpoint(self) -> None:
        """Keep what there is, once a case has been measured, for whoever is interrupted without a chance to."""
        if any(each.samples_s for each in self.cases.values()):
            self.write(self.document(complete=False))

    def write(self, document: dict[str, Any]) -> Path:
        """Write results.json: whole or not at all."""
        if document["complete"]:
            self.whole = document
        return results.write_json(self.output, NAME, document, self.mode)

    def kept(self) -> str:
        """Write once more, after an interrupt, what there is of the results, and say where it is."""
        if self.whole is not None:  # the interrupt may have come in the middle of writing them
            return f"the results were complete and are in {self.write(self.whole)}"
        if not any(each.samples_s for each in self.cases.values()):
            return "no results were written"
        path = self.write(self.document(complete=False))
        return f"what was measured is in {path}, marked as incomplete; go on with --resume"


def require_same(earlier: dict[str, Any], about: dict[str, Any], path: Path) -> None:
    """Refuse to go on with a calibration that is finished or another one.

    Raises:
        RequestInvalidError: It is; the message has the first difference with both sides.
    """
    doing, remedy = f"go on with {path}", "leave out --resume to begin anew"
    if earlier.get("complete", True):
        raise errors.RequestInvalidError(f"{doing}: it is complete", remedy=remedy)
    for where, old, new in _differences(earlier, about):
        raise errors.RequestInvalidError(f"{doing}: its {where} was {old!r} and is {new!r} here", remedy=remedy)


def _differences(earlier: dict[str, Any], about: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    found = []
    for part, new in about.items():
        old = earlier.get(part)
        if not (isinstance(old, dict) and isinstance(new, dict)):
            found += [(part, old, new)] if old != new else []
            continue
        for name in dict.fromkeys([*old, *new]):
            if name not in _MAY_DIFFER and old.get(name) != new.get(name):
                found.append((f"{part}.{name}", old.get(name), new.get(name)))
    return found
