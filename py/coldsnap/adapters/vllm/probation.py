"""Probation: the engine that captured an artifact is asked, and so is the first one that was restored from it.

Both before they report that they are ready. An answer that differs puts the artifact under quarantine and ends the start.
"""

from __future__ import annotations

import os
from typing import Any

from vllm.logger import init_logger

from coldsnap import errors, quarantine
from coldsnap.adapters import oracle
from coldsnap.adapters.oracle import Oracle
from coldsnap.adapters.vllm import engine
from coldsnap.adapters.vllm.started import Started, of_this_worker

_log = init_logger("vllm.coldsnap")


def started(worker: Any) -> Started | None:
    """In a worker: what its loader did."""
    return of_this_worker()


def ask(core: Any) -> None:
    """An engine core was built: ask it where its artifact is on probation.

    Raises:
        LayoutError: It was restored, and says something else than the engine that captured the artifact.
    """
    if core.vllm_config.load_config.load_format != "coldsnap" or not engine.can_be_asked(core):
        return
    try:
        found = engine.of_first_worker(core, started)
        then = None if found is None else oracle.read(found.artifact_root, os.environ)
        if found is None or (found.what == "restored" and (then is None or then.qualified)):
            return  # captured elsewhere, or asked before
        now = answer(core)
    except Exception as cause:  # of whatever kind: without an answer an artifact stays on probation
        _log.info("coldsnap: the artifact stays on probation: %s: %s", type(cause).__name__, cause)
        return
    _judge(found, then, now)


def answer(core: Any) -> Oracle:
    """What an engine core says to the fixed prompt."""
    prompt = oracle.prompt(engine.vocabulary(core))
    return Oracle(prompt, *engine.generate(core, prompt, oracle.TOKENS))


def _judge(found: Started, then: Oracle | None, now: Oracle) -> None:
    root = found.artifact_root
    if found.what == "restored" and then is not None and then.prompt == now.prompt:
        try:
            oracle.require_same(root, then, now)
        except errors.LayoutError as failure:
            quarantine.write(root, failure, "probation", os.environ)
            raise
        now = now._replace(qualified=True)
    try:
        oracle.write(root, now, os.environ)
    except errors.Error as cause:
        _log.info("coldsnap: the artifact stays on probation: %s", cause)
        return
    if now.qualified:
        _log.info("coldsnap: artifact %s is qualified: the engine says what the one that captured it said", root[:12])
