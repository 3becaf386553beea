"""What the ranks of a start decide together: a rank alone neither restores nor falls back.

The first verdict comes before a model is built: all restore the same artifact, or all load. The second comes after the
bytes: where one rank failed, all fail. Each rank says its part and hears all parts, within a time limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from coldsnap import errors

# Ranks wait for the one that reads the checkpoint's files for their digests, or that has the slowest drive.
TIME_LIMIT_S = 900.0


class Ranks(Protocol):
    """The processes that load one model together.

    Attributes:
        rank: Of this process, from 0.
        size: How many there are.
    """

    rank: int
    size: int

    def gather(self, text: str, timeout_s: float) -> list[str]:
        """What each rank said, by rank; every rank calls it in the same order.

        Raises:
            TimedOutError: A rank said nothing in time; the message has its number.
        """


@dataclass(frozen=True, slots=True)
class Alone:
    """The only rank there is."""

    rank: int = 0
    size: int = 1

    def gather(self, text: str, timeout_s: float) -> list[str]:
        return [text]


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank has to say before the model is built.

    Attributes:
        identity: Digest of the identity; empty where there is none.
        artifact: Root of the artifact that it can restore; empty where it can't.
        code: Of the reason why it can't, as in ``receipt.error["code"]`` or ``receipt.reasons``.
        why: The same for people.
        token: Of rank 0: names a capture of these ranks.
        again: Whether the current artifact may be captured anew, in another way.
    """

    identity: str = ""
    artifact: str = ""
    code: str = ""
    why: str = ""
    token: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rank's restore went, or would its capture.

    Attributes:
        code: Of the failure; empty where it succeeded.
        message: What failed, with its numbers.
        remedy: What helps.
        nbytes: Bytes that it moved, or would write.
        seconds: How long that took.
    """

    code: str = ""
    message: str = ""
    remedy: str = ""
    nbytes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, failure: BaseException) -> Outcome:
        """The outcome of a rank that failed."""
        if isinstance(failure, errors.Error):
            return cls(failure.code, failure.message[:4000], failure.remedy[:4000])
        return cls("internal", f"{type(failure).__name__}: {failure}"[:4000])


def before_building(ranks: Ranks, mine: Part, timeout_s: float = TIME_LIMIT_S) -> Part:
    """What all ranks do: restore ``artifact``, or load for the reason in ``why``; the same in every rank.

    Raises:
        TimedOutError: A rank said nothing.
    """
    parts = [Part(**json.loads(text)) for text in ranks.gather(json.dumps(asdict(mine)), timeout_s)]
    first = parts[0]
    unlike = next((rank for rank, part in enumerate(parts) if part.identity != first.identity), None)
    if unlike is not None:
        return Part(code="ranks_disagree", why=f"rank {unlike} loads another model, or in another way, than rank 0")
    if all(part.artifact and part.artifact == first.artifact for part in parts):
        return first
    for rank, part in enumerate(parts):
        if not part.artifact:
            if all(not other.artifact for other in parts):
                return replace(first, artifact="")
            why = f"rank {rank} can't restore: {part.why}"
            return Part(first.identity, code="ranks_disagree", why=why, token=first.token)
    roots = ", ".join(f"rank {rank} {part.artifact[:12]}" for rank, part in enumerate(parts))
    return Part(
        first.identity, code="ranks_disagree", why=f"the ranks have different artifacts: {roots}", token=first.token
    )


def after(ranks: Ranks, mine: Outcome, doing: str, timeout_s: float = TIME_LIMIT_S) -> list[Outcome]:
    """Every rank's outcome, where all of them succeeded.

    Args:
        ranks: The ranks.
        mine: This rank's outcome.
        doing: What was being done, for the message.
        timeout_s: Most seconds to wait.
    Raises:
        The failure of the lowest rank that failed, with its number, in every rank.
        TimedOutError: A rank said nothing.
    """
    outcomes = [Outcome(**json.loads(text)) for text in ranks.gather(json.dumps(asdict(mine)), timeout_s)]
    failed = next((rank for rank, outcome in enumerate(outcomes) if outcome.code), None)
    if failed is None:
        return outcomes
    outcome = outcomes[failed]
    where = f"rank {failed}: " if ranks.size > 1 else ""
    raise errors.from_native(outcome.code, f"{doing}: {where}{outcome.message}", remedy=outcome.remedy)


def total(outcomes: Sequence[Outcome]) -> tuple[int, float]:
    """Bytes of all ranks, and seconds until the last of them was done."""
    return sum(outcome.nbytes for outcome in outcomes), max(outcome.seconds for outcome in outcomes)
