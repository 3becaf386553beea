"""What the engine that captured an artifact said to a fixed prompt, so that the first one restored from it can be asked.

Digests and layout are equal where a kernel keeps a weight that nobody sees; what the engine says is not. An artifact whose
oracle is known on this machine is on probation until an engine restored from it has said the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from coldsnap import errors, records, state

FORMAT = 1
PROMPT_TOKENS, TOKENS = 8, 4
# Of the sum of log-probabilities: the same kernels give the same bits, so this is room for what isn't deterministic.
TOLERANCE = 4e-3
_PLACE = state.Place("oracles")
_MAX_BYTES = 64 << 10
_TOKENS = records.array(records.whole(0, (1 << 31) - 1))
_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT),
    prompt=_TOKENS,
    tokens=_TOKENS,
    logprob=records.text(r"-?\d+\.\d+(e-?\d+)?"),
    qualified=records.whole(0, 1),
)


class Oracle(NamedTuple):
    """A prompt and what an engine said to it.

    Attributes:
        prompt: Token ids.
        tokens: The most probable token ids after it.
        logprob: Sum of their log-probabilities.
        qualified: Whether an engine that was restored has said the same.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprob: float
    qualified: bool = False


def prompt(vocabulary: int) -> tuple[int, ...]:
    """The fixed prompt: token ids spread over a vocabulary of that size."""
    return tuple((index * 7919 + 17) % vocabulary for index in range(PROMPT_TOKENS))


def difference(then: Oracle, now: Oracle) -> str:
    """In what two answers differ; empty where they are the same."""
    if then.tokens != now.tokens:
        return f"it said the tokens {list(now.tokens)}, and the engine that captured it {list(then.tokens)}"
    if not abs(then.logprob - now.logprob) <= TOLERANCE:  # so that NaN differs
        return f"its log-probability is {now.logprob:.6f}, and was {then.logprob:.6f} in the engine that captured it"
    return ""


def write(artifact_root: str, oracle: Oracle, environ: Mapping[str, str]) -> None:
    """Keep the oracle of an artifact, in the place of a former one.

    Raises:
        PolicyRefusedError: The state folder can't be trusted.
        IoError, NoSpaceError: It can't be written.
    """
    found = {**oracle._asdict(), "logprob": f"{oracle.logprob:.9f}", "qualified": int(oracle.qualified)}
    with state.opened(_PLACE, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        state.write_file(folder, f"{artifact_root}.json", json.dumps({"format": FORMAT, **found}).encode() + b"\n")


def read(artifact_root: str, environ: Mapping[str, str]) -> Oracle | None:
    """The oracle of an artifact; None where none is known here, or its record is damaged.

    Raises:
        PolicyRefusedError: The state folder can't be trusted.
        IoError: It can't be read.
    """
    if not state.is_known(environ):
        return None
    with state.opened(_PLACE, environ) as folder:
        data = None if folder is None else state.read_file(folder, f"{artifact_root}.json", _MAX_BYTES)
    if data is None:
        return None
    try:
        found = records.load(data, _SCHEMA)
    except ValueError:
        return None
    return Oracle(tuple(found["prompt"]), tuple(found["tokens"]), float(found["logprob"]), bool(found["qualified"]))


def require_same(artifact_root: str, then: Oracle, now: Oracle) -> None:
    """Refuse an engine that was restored and says something else.

    Raises:
        LayoutError: It does.
    """
    unlike = difference(then, now)
    if unlike:
        raise errors.LayoutError(
            f"ask the engine restored from artifact {artifact_root[:12]}: {unlike}",
            stage="publish",
            remedy="the artifact is now under quarantine: the next start loads normally",
        )
