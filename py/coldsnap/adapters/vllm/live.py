"""A worker of an engine that serves: what its loader left to be captured, and its control socket.

The loader prepares, in each worker. The engine's core, once it is built and has said what it says to the oracle's prompt,
lets all workers begin: rank 0 opens the socket and captures, or waits to be asked; the others follow it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vllm.logger import init_logger

from coldsnap import errors
from coldsnap.adapters import early, oracle, sums
from coldsnap.adapters.configuration import Configuration
from coldsnap.adapters.control_server import ControlServer, Tell
from coldsnap.adapters.live import Did, Live, Plan
from coldsnap.adapters.oracle import Oracle
from coldsnap.adapters.vllm import compat, engine, lines, probation
from coldsnap.adapters.vllm.capture import Capture
from coldsnap.receipts import Receipt

_log = init_logger("vllm.coldsnap")


@dataclass
class Worker:
    """What this worker's loader prepared.

    Attributes:
        configuration: Of the start.
        model: Its name, as the engine has it.
        keep: Keeps a receipt where that can be.
        rank: Of this worker.
        said: What the engine said to the oracle's prompt; None where it can't be asked.
    """

    configuration: Configuration
    model: str
    keep: Callable[[Receipt | None], None]
    rank: int
    said: Oracle | None = None

    def captured(self, receipt: Receipt, nbytes: int, seconds: float) -> None:
        self.keep(receipt)
        _log.info("%s", lines.captured(receipt, nbytes, seconds))
        if self.said is None or receipt.artifact_root is None:
            return
        try:
            oracle.write(receipt.artifact_root, self.said, os.environ)
        except errors.Error as cause:
            _log.info("coldsnap: the artifact stays on probation: %s", cause)

    def failed(self, failure: BaseException) -> None:
        self.keep(getattr(failure, "receipt", None))
        _log.info("coldsnap: not captured: %s", failure)


_prepared: list[tuple[Worker, Live]] = []


def prepare(
    configuration: Configuration, model: str, did: Did, token: str, capture: Capture | None, keep: Callable[..., None]
) -> None:
    """For the loader, at its end: what this worker may capture later, and what it says of itself.

    Args:
        configuration: Of the start.
        model: Its name.
        did: What the loader did.
        token: Of rank 0, for this start.
        capture: The capture that was planned, or None.
        keep: Keeps a receipt where that can be.
    """
    _prepared.clear()
    plan = None if capture is None or capture.planned is None else _plan_of(capture, configuration)
    if plan is None and configuration.control.value is None:
        return
    ranks = compat.beside(f"{token}/live")
    worker = Worker(configuration, model, keep, ranks.rank)
    _prepared.append((worker, Live(did, ranks, plan, worker)))


def _plan_of(capture: Capture, configuration: Configuration) -> Plan:
    assert capture.planned is not None
    return Plan(
        arguments=capture.planned,
        before=sums.of(capture.planned["tensors"]),
        identity=capture.identity,
        shard=capture.shard,
        token=capture.token,
        place=capture.place,
        replace=capture.replace,
        rate=configuration.capture_rate.value,
        once=configuration.control.value is None,
    )


def built(core: Any) -> None:
    """An engine core was built: have it asked where its artifact is on probation, and let what waits for it begin.

    Raises:
        LayoutError: It was restored, and says something else than the engine that captured the artifact.
        PolicyRefusedError, IoError: The control socket that was named can't be opened.
    """
    probation.ask(core)
    if core.vllm_config.load_config.load_format != "coldsnap":
        early.forget()
        return
    if not engine.of_first_worker(core, is_prepared):
        return
    asks = engine.of_first_worker(core, waits) and engine.can_be_asked(core)
    engine.of_workers(core, begin, _said(core) if asks else None)


def _said(core: Any) -> Oracle | None:
    try:
        return probation.answer(core)
    except Exception as cause:  # of whatever kind: a capture can do without
        _log.info("coldsnap: what is captured will have no probation: %s: %s", type(cause).__name__, cause)
        return None


def is_prepared(worker: Any) -> bool:
    """In a worker: whether there is anything to begin."""
    return bool(_prepared)


def waits(worker: Any) -> bool:
    """In a worker: whether there is anything to capture."""
    return bool(_prepared) and _prepared[0][1].planned


def begin(worker: Any, said: Oracle | None) -> None:
    """In a worker: the engine is there.

    Raises:
        PolicyRefusedError, IoError: The control socket can't be opened.
    """
    mine, live = _prepared[0]
    mine.said = said
    if live.planned:
        engine.around_sleep(worker, live.before_sleep, live.after_wake)
        atexit.register(live.end)
    path = mine.configuration.control.value
    if mine.rank == 0 and path is not None:
        ControlServer(path, lambda request, tell: _answer(mine, live, request, tell))
        _log.info("coldsnap: answers at the control socket %s", path)
    if live.planned and mine.rank > 0:
        live.begin(live.follow)
    elif live.planned and mine.configuration.when.value == "ready":
        live.begin(live.first)


def _answer(mine: Worker, live: Live, request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What a client asked for, over the control socket."""
    if request["operation"] == "status":
        return {"report": {"engine": "vllm", "model": mine.model, **live.status()}, "receipt": None}
    taken = live.capture(request["store"], tell)
    return {
        "report": {"path": str(taken.path), "tensors": taken.tensors},
        "receipt": taken.receipt.as_dict(),
    }
