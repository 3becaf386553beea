"""Weights of a running engine that go and come back in their place: methods of vLLM's worker, for ``collective_rpc``.

    llm = LLM(MODEL, load_format="coldsnap", enable_sleep_mode=True,
              worker_extension_cls="coldsnap.adapters.vllm.worker.WorkerExtension")
    llm.sleep(level=2)
    llm.wake_up(tags=["weights"])
    llm.collective_rpc("coldsnap_hydrate")
    llm.wake_up(tags=["kv_cache"])

Everything is checked before the first byte, in every rank; then all have their weights, or each call raises.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from vllm.logger import init_logger

from coldsnap import errors
from coldsnap.adapters import verdict
from coldsnap.adapters.verdict import Outcome
from coldsnap.adapters.vllm import compat, lines, pool
from coldsnap.adapters.vllm.kept import keep, remember
from coldsnap.adapters.vllm.weights import ANEW, Weights, opened
from coldsnap.adapters.walker import Walked
from coldsnap.receipts import Receipt

_log = init_logger("vllm.coldsnap")
_MOST_NAMED = 100
_Done = TypeVar("_Done")


class WorkerExtension:
    """What ``--worker-extension-cls`` mixes into each worker. Answers are plain dictionaries, one for each rank.

    Of several ranks the last one raises, what the first that failed met; its number is in the message.
    """

    def coldsnap_release(self) -> dict[str, Any]:
        """Give the memory of the weights back to the driver and keep its addresses; what is in it is lost.

        Until `coldsnap_hydrate` the engine must not be asked for anything.

        Returns:
            ``rank``, ``shard``, ``artifact_root``, ``released_bytes``, ``wall_s``.
        Raises:
            PolicyRefusedError: The engine has no sleep mode, its weights are asleep, or `coldsnap_hydrate` could not bring
                them back. Nothing was released, in no rank.
        """
        return _said(lambda: _release(self))

    def coldsnap_hydrate(self, artifact: str | None = None) -> dict[str, Any]:
        """Fill the weights where they are, from the artifact that this start captured or restored, verified.

        Wakes the weights' memory where it sleeps. The engine's own ``wake_up`` does the rest afterwards.

        Args:
            artifact: Folder of another copy, of equal identity.
        Returns:
            ``rank``, ``shard``, ``artifact_root``, ``payload_bytes``, ``wall_s``, ``routes``, ``verified``, ``woken``.
        Raises:
            PolicyRefusedError, LayoutError, QuarantinedError: The weights can't be filled in their place. None was touched,
                in no rank.
            DataLossError, and others as of `coldsnap.hydrate`: A rank failed while it was filled, and its weights are 0xFF.
                After a failure of the data the artifact is under quarantine.
        """
        return _said(lambda: _hydrate(self, artifact))

    def coldsnap_verify(self, artifact: str | None = None) -> dict[str, Any]:
        """Compare the weights where they are with the digests of the artifact; nothing is written to them.

        Args:
            artifact: As of `coldsnap_hydrate`.
        Returns:
            ``rank``, ``shard``, ``artifact_root``, ``payload_bytes``, ``wall_s``, ``equal``, ``different`` (a line for each
            extent that differs, of the first hundred).
        Raises:
            PolicyRefusedError, LayoutError: They can't be compared: asleep, or not where or what they were.
        """
        return _said(lambda: _verify(self, artifact))


def _said(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a call gives, in every rank; a failure, which all ranks know, is raised by the last one alone.

    vLLM reads the answers by rank and leaves off at the first failure. What it leaves would be taken for answers to the
    next calls.
    """
    try:
        return call()
    except errors.Error as failure:
        ranks = compat.ranks()
        if ranks.rank == ranks.size - 1:
            raise
        return {"rank": ranks.rank, "error": failure.code}


def _release(worker: Any) -> dict[str, Any]:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:

        def ready() -> Weights:
            why = pool.why_not_release(worker)
            if why:
                raise errors.PolicyRefusedError(why, stage="open")
            weights = stack.enter_context(opened(worker))
            weights.require_usable()
            weights.look()
            return weights

        weights, _ = _in_all("release the engine's weights", ready)
        compat.wait_for(weights.device)
        return _answer(weights, released_bytes=pool.release(), wall_s=time.monotonic() - begin)


def _hydrate(worker: Any, named: str | None) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:

        def ready() -> tuple[Weights, Walked, bool]:
            weights = stack.enter_context(opened(worker, named))
            weights.require_usable()
            woken = pool.wake(worker)
            return weights, weights.look(), woken

        (weights, walked, woken), _ = _in_all("hydrate the engine's weights", ready)
        receipt = _filled(weights, walked)
        return _answer(
            weights,
            payload_bytes=receipt.payload_bytes,
            wall_s=receipt.wall_s,
            routes=[route["route"] for route in receipt.routes],
            verified=str(receipt.verify["mode"]),
            woken=woken,
        )


def _filled(weights: Weights, walked: Walked) -> Receipt:
    """Fill the weights: in all ranks, or no rank's count."""
    root = weights.artifact.artifact_root

    def fill() -> Receipt:
        try:
            return weights.fill(walked)
        except Exception as failure:
            keep(getattr(failure, "receipt", None))
            raise

    try:
        receipt, outcomes = _in_all(f"hydrate the engine's weights from artifact {root[:12]}", fill, _moved)
    except errors.Error as failure:
        remember(root, failure, "no start restores it", otherwise="restore from it no more")
        failure.remedy = f"{failure.remedy}; until then the weights mean nothing: {ANEW}".removeprefix("; ")
        raise
    keep(receipt)
    if compat.ranks().rank == 0:
        _log.info("%s", lines.restored(receipt, *verdict.total(outcomes)))
    return receipt


def _moved(receipt: Receipt) -> Outcome:
    return Outcome(nbytes=receipt.payload_bytes, seconds=receipt.wall_s)


def _verify(worker: Any, named: str | None) -> dict[str, Any]:
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:

        def compared() -> tuple[Weights, list[str]]:
            weights = stack.enter_context(opened(worker, named))
            if pool.is_asleep(worker):
                remedy = 'call wake_up(tags=["weights"]) before'
                raise errors.PolicyRefusedError("they are asleep", stage="open", remedy=remedy)
            return weights, weights.changed(weights.look())

        (weights, different), _ = _in_all("verify the engine's weights", compared)
        return _answer(
            weights,
            payload_bytes=weights.artifact.payload_bytes,
            wall_s=time.monotonic() - begin,
            equal=not different,
            different=different[:_MOST_NAMED],
        )


def _in_all(
    doing: str, step: Callable[[], _Done], outcome_of: Callable[[_Done], Outcome] = lambda _: Outcome()
) -> tuple[_Done, list[Outcome]]:
    """Do a step in every rank, or raise in each what the first of them raised that failed."""
    cause: BaseException | None = None
    try:
        done = step()
        outcome = outcome_of(done)
    except Exception as failure:  # said to the other ranks
        outcome, cause = Outcome.of(failure), failure
    try:
        outcomes = verdict.after(compat.ranks(), outcome, doing)
    except errors.Error as failure:
        raise failure from cause
    return done, outcomes


def _answer(weights: Weights, **found: Any) -> dict[str, Any]:
    artifact = weights.artifact
    return {"rank": compat.ranks().rank, "shard": artifact.shard, "artifact_root": artifact.artifact_root, **found}
