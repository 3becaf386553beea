"""Which settings to try: the whole grid of a sweep, or a search that leaves out most of it.

The search changes one thing at a time, chunk, threads or depth, and keeps what is fastest (coordinate descent). Along
such a line it halves: one sample of each, the better half once more with twice as many, until one is left. So it is the
same for the same samples, and an interrupted one that is given its samples again goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coldsnap._bench.captures import DEFAULT, CaptureCase, Capturer
from coldsnap._bench.cases import (
    ALL_DIGESTS,
    DIGESTS,
    TRIAL_BYTES,
    Case,
    Measured,
    Restorer,
    Setting,
    both_ways,
    drive_default,
)
from coldsnap._bench.sizes import KIB, MIB

SWEEP_CHUNKS = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
_CHUNKS = (256 * KIB, 512 * KIB, 1 * MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB)
_MOST_SLOTS = 64
_MOST_SAMPLES = 4  # of one trial; the finals decide by more
_PASSES = 2  # over all lines; a third never found more than noise would

Adopt = Callable[[Measured], Measured]  # gives the case that has this one's key, with the samples that it has already
Take = Callable[[Measured, int], bool]  # sees that a case has so many samples; False when there is no time for it


@dataclass(frozen=True)
class Goal:
    """What a search is for: `trial` makes the case of a setting, over all of the payload or enough of it."""

    name: str
    base: Setting
    trial: Callable[[Setting, int | None], Measured]


def goals(restorer: Restorer, capturer: Capturer | None, setting: Setting, caches: frozenset[str]) -> list[Goal]:
    """List what is searched for, in the order of how much there is to gain: each route where it is at home."""

    def restore(route: str, state: str, digest: str = ALL_DIGESTS) -> Callable[[Setting, int | None], Measured]:
        return lambda each, at_most: Case(restorer, route, state, digest, each, at_most=at_most)

    def half(each: Setting, at_most: int | None) -> Measured:
        # Of both ways only what the drive gets is looked for; the rest is the goal before.
        return Case(restorer, "auto", "half", DIGESTS[1], both_ways(setting, each))

    drive = drive_default(setting)
    found = [
        Goal("restore direct, cold", drive, restore("direct", "cold")),
        Goal("restore buffered, warm", setting, restore("buffered", "warm")),
        Goal("restore auto, half", drive, half),
    ]
    found = [each for each in found if each.name.rpartition(" ")[2] in caches]
    if capturer is not None:
        found.append(Goal("capture direct, new", DEFAULT, functools.partial(_capture, capturer)))
    return found


def _capture(capturer: Capturer, setting: Setting, at_most: int | None) -> Measured:
    return CaptureCase(capturer, "direct", "new", ALL_DIGESTS, setting)


def few_for_the_drive(setting: Setting, ladder: Sequence[int]) -> list[Setting]:
    """A handful of settings for reads from the drive, for when there is no time for a search.

    Small chunks and few slots stay in the processor's cache, where drives of virtual machines are fastest; some drives
    want many reads at once.
    """
    few = [count for count in ladder if count in (1, 2, 4)]
    shapes = [Setting(chunk, max(4, 2 * count), count) for chunk in (MIB // 2, MIB) for count in few]
    plain = Setting(setting.chunk_bytes, setting.queue_depth, setting.threads)
    return list(dict.fromkeys([plain, drive_default(setting), *shapes]))


def halve(candidates: Sequence[Measured], take: Take) -> Measured | None:
    """Find the fastest of some cases by halving; None if not one could be measured. Ties go to the first."""
    standing, samples = list(candidates), 1
    while True:
        measured = [each for each in standing if take(each, samples) or each.samples_s]
        ranked = sorted(measured, key=lambda each: each.median_s / each.nbytes)
        if len(ranked) < 2 or samples >= _MOST_SAMPLES:
            return ranked[0] if ranked else None
        standing, samples = ranked[: (len(ranked) + 1) // 2], 2 * samples


def descend(goal: Goal, ladder: Sequence[int], pinned_max_bytes: int, adopt: Adopt, take: Take) -> Setting:
    """Find the fastest setting for a goal, as far as `take` has time; give the base where nothing was measured."""
    best = goal.base
    for _ in range(_PASSES):
        before = best
        for line in (_chunks, _threads, _depths):
            fitting = [each for each in (best, *line(best, ladder)) if _fits(each, pinned_max_bytes)]
            trials = {each.key: each for each in (adopt(goal.trial(setting, TRIAL_BYTES)) for setting in fitting)}
            winner = halve(list(trials.values()), take)
            best = best if winner is None else _sought(winner)
        if best == before:
            break
    return best


def sweep(restorer: Restorer, capturer: Capturer | None, ladder: Sequence[int], setting: Setting) -> list[Measured]:
    """List the grid: chunk x depth x threads, each route where it is at home, with each digest.

    That is ``direct`` cold, ``buffered`` warm, ``auto`` half cached, and captures by ``direct``, whose digests are no
    choice. Depths are 1, 2 and 4 slots per thread, at most 64; a ring above the pinned cap is left out. What matters
    most comes first, should there be no time for all.
    """
    shapes = [
        Setting(chunk, depth, count)
        for chunk in SWEEP_CHUNKS
        for count in ladder
        for depth in sorted({min(_MOST_SLOTS, count * factor) for factor in (1, 2, 4)})
    ]
    shapes = [each for each in shapes if _fits(each, restorer.pinned_max_bytes)]
    found: list[Measured] = []
    for digest in reversed(DIGESTS):
        found += [Case(restorer, "direct", "cold", digest, each) for each in shapes]
        found += [Case(restorer, "buffered", "warm", digest, each) for each in shapes]
    found += [Case(restorer, "auto", "half", DIGESTS[1], both_ways(setting, each)) for each in shapes]
    if capturer is not None:
        found += [CaptureCase(capturer, "direct", "new", ALL_DIGESTS, each) for each in shapes]
    return found


def _chunks(at: Setting, ladder: Sequence[int]) -> list[Setting]:
    return [dataclasses.replace(at, chunk_bytes=chunk) for chunk in _CHUNKS]


def _threads(at: Setting, ladder: Sequence[int]) -> list[Setting]:
    """Other numbers of threads, each with as many slots per thread as there are."""
    per_thread = max(1, at.queue_depth // at.threads)
    return [Setting(at.chunk_bytes, min(_MOST_SLOTS, per_thread * count), count) for count in ladder]


def _depths(at: Setting, ladder: Sequence[int]) -> list[Setting]:
    depths = sorted({min(_MOST_SLOTS, at.threads * factor) for factor in (1, 2, 4)})
    return [dataclasses.replace(at, queue_depth=depth) for depth in depths]


def _fits(each: Setting, pinned_max_bytes: int) -> bool:
    return each.chunk_bytes * each.queue_depth <= pinned_max_bytes


def _sought(winner: Measured) -> Setting:
    """What the search changes of a winner's setting: of `auto` half cached, the part for the drive."""
    found = winner.setting
    if found.direct_threads:
        return Setting(found.direct_chunk_bytes, found.direct_queue_depth, found.direct_threads)
    return found
