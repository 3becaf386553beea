"""The weights of a running worker beside the artifact they came from: what has to hold before a byte moves, and the bytes.

Only finished weights, each where it was at the end of loading: all else the engine has built points there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from coldsnap import errors, quarantine
from coldsnap.adapters import coverage, in_place, snapshot
from coldsnap.adapters.configuration import BACKEND
from coldsnap.adapters.search import STRATEGY
from coldsnap.adapters.vllm import compat, identity, pool, started
from coldsnap.adapters.vllm.restore import look_at
from coldsnap.adapters.vllm.started import Started
from coldsnap.adapters.walker import Walked
from coldsnap.artifact import Artifact, open_artifact
from coldsnap.hydrate import Hydrator
from coldsnap.receipts import Receipt

# vLLM's own way back builds on how it loaded a model, which a restored one was not.
ANEW = "start the engine anew"
_SHOWN = 5


@contextlib.contextmanager
def opened(worker: Any, named: str | None = None) -> Iterator[Weights]:
    """The worker's weights beside the artifact that its start captured or restored, or beside another copy of it.

    Args:
        worker: vLLM's.
        named: Folder of the other copy, whose identity has to be equal.
    Raises:
        PolicyRefusedError: They are not those of one artifact of finished weights.
        DataLossError, FormatInvalidError, IoError: The artifact can't be opened.
    """
    why = compat.why_not_in_place(worker.vllm_config)
    mine = started.of_this_worker()
    if not why and mine is None:
        why = "this start neither captured nor restored them, for the reason that its log has"
    if why or mine is None:
        raise errors.PolicyRefusedError(f"the weights belong to no artifact: {why}", stage="open", remedy=ANEW)
    with _artifact(mine.path if named is None else named, mine) as artifact:
        if artifact.scalars[STRATEGY] == "loaded":
            raise errors.PolicyRefusedError(
                f"artifact {artifact.artifact_root[:12]} has the weights as they were before post-processing (strategy "
                "loaded), and the engine's are finished",
                stage="open",
                remedy=ANEW,
            )
        yield Weights(worker, artifact)


@contextlib.contextmanager
def _artifact(path: str, mine: Started) -> Iterator[Artifact]:
    try:
        artifact = open_artifact(path, shard=mine.shard)
    except errors.Error as failure:
        quarantine.note_unopened(path, failure, "hydrate")
        raise
    with artifact:
        unlike = identity.different(mine.identity, artifact.identity)
        if path == mine.path and artifact.artifact_root != mine.artifact_root:
            unlike.append(f"root was {mine.artifact_root[:12]} and is {artifact.artifact_root[:12]}")
        if unlike:
            raise errors.PolicyRefusedError(
                f"artifact {artifact.artifact_root[:12]} is of another start: {_some(unlike)}",
                stage="open",
                remedy=ANEW,
            )
        yield artifact


class Weights:
    """A worker's weights and their artifact, which is open.

    Attributes:
        artifact: The artifact.
        device: Where the weights are.
    """

    def __init__(self, worker: Any, artifact: Artifact) -> None:
        self.artifact = artifact
        self.device = torch.device(worker.device)
        self._model: torch.nn.Module = worker.get_model()

    def require_usable(self) -> None:
        """Refuse an artifact that has failed before.

        Raises:
            QuarantinedError: It has.
        """
        root = self.artifact.artifact_root
        record = quarantine.find(root, os.environ)
        if record is not None:
            raise errors.QuarantinedError(
                f"artifact {root[:12]} is under quarantine ({record.code}: {record.message})",
                stage="open",
                remedy=ANEW,
            )

    def look(self) -> Walked:
        """What of the model was captured. Its memory has to be there: integers are looked into.

        Raises:
            LayoutError: A weight is not where it was at the end of loading, or not as it was captured; or the engine keeps
                more as its weights than was captured.
        """
        moved = started.moved(self._model)
        if moved:
            raise _unlike("are not where they were at the end of loading", moved)
        walked = in_place.as_captured(look_at(self._model), self.artifact, compat.later)
        different = snapshot.differences(walked, self.artifact)
        if different:
            raise _unlike("are not as they were captured", different)
        self._require_covered(walked)
        return walked

    def fill(self, walked: Walked) -> Receipt:
        """Give the weights, as `look` found them, their captured bytes, verified.

        Raises:
            As `coldsnap.hydrate`; LayoutError: The values that Python derives from them are not the captured ones.
        """
        compat.wait_for(self.device)
        with Hydrator(backend=BACKEND) as hydrator:  # type: ignore[arg-type]  # an adapter's default
            receipt = hydrator.hydrate(self.artifact, snapshot.destinations(walked))
        snapshot.restore_host(walked, self.artifact)
        compat.refresh_scales(self._model)
        self.look()
        return receipt

    def changed(self, walked: Walked) -> list[str]:
        """Where the weights, as `look` found them, differ from the captured bytes: a line for each place."""
        compat.wait_for(self.device)
        found = in_place.changed(self.artifact, snapshot.destinations(walked))
        return found + snapshot.host_changes(walked, self.artifact)

    def _require_covered(self, walked: Walked) -> None:
        """Refuse where loading left more in the memory that a sleep takes away than was captured.

        What the engine made there later, its sampler's buffers say, is no weight, and lost however weights come back.
        """
        of_load = started.in_use()
        held = {address: nbytes for address, nbytes in pool.in_use(self.device).items() if address in of_load}
        hidden = coverage.hidden({}, held, walked)
        nbytes = sum(each.nbytes for each in hidden)
        if nbytes > coverage.SMALL_BYTES:
            raise errors.LayoutError(
                f"{nbytes} bytes of the engine's weights are in no tensor that was captured, the largest {hidden[0].nbytes} "
                f"at {hidden[0].address:#x}",
                stage="open",
                remedy=ANEW,
            )


def _unlike(what: str, found: list[str]) -> errors.LayoutError:
    return errors.LayoutError(f"{len(found)} weights {what}: {_some(found)}", stage="open", remedy=ANEW)


def _some(found: list[str]) -> str:
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more
