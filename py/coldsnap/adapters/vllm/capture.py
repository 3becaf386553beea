"""A model by the engine's own loader, and its weights as an artifact where that makes sense.

What is captured depends on what a restore could do with it, so it is decided while the model is there: the finished
weights where this engine can take them back (``meta``), or can build the same layout without them (``shape``); else what
its loader made of the checkpoint, before post-processing (``loaded``). Ranks decide together, and none captures alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from coldsnap import errors, store_place
from coldsnap.adapters import coverage, snapshot, verdict
from coldsnap.adapters.configuration import BACKEND
from coldsnap.adapters.rank_capture import blob_bytes, captured, group_of, room
from coldsnap.adapters.search import STRATEGY
from coldsnap.adapters.verdict import Outcome, Ranks
from coldsnap.adapters.vllm import compat, pool
from coldsnap.adapters.vllm.restore import look_at
from coldsnap.adapters.walker import Walked
from coldsnap.receipts import Receipt
from coldsnap.settings import Setting
from coldsnap.store import Store

STAGE = "coldsnap.stage"


@dataclass
class Capture:
    """One capture of a start, as one rank sees it.

    Attributes:
        place: The store's path, and who chose it.
        identity: Of the artifact.
        ranks: Who loads the model together.
        shard: Of this rank.
        token: Names this capture among the ranks.
        device: Where weights are.
        replace: Whether another artifact of the identity may be current now.
        only: A strategy that is taken whatever else would do; empty: the best.
        later: When finished weights are captured, if not now: ``ready`` or ``asked`` (`coldsnap.adapters.live`).
        failure: Why nothing was captured.
        unfit: Whether that was since the finished weights can't be: what they are made from may be.
        planned: Arguments of `coldsnap.capture`, where the capture comes later.
        receipt: Of the capture, once it was published.
        outcomes: Of all ranks: bytes of their blobs.
        seconds: That the capture took.
    """

    place: Setting
    identity: dict[str, Any]
    ranks: Ranks
    shard: str
    token: str
    device: torch.device
    replace: bool = False
    only: str = ""
    later: str = ""
    failure: BaseException | None = None
    unfit: bool = False
    planned: dict[str, Any] | None = None
    receipt: Receipt | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    _before: dict[int, int] = field(default_factory=dict)
    _loaded: Walked | None = None
    _strategy: str = ""

    @property
    def store(self) -> Store:
        """Where artifacts go."""
        return Store(self.place.value)

    def load(self, loader: BaseModelLoader, vllm_config: Any, model_config: Any, prefix: str) -> torch.nn.Module:
        """The engine's own load, with a look at the model before and after post-processing.

        Whatever goes wrong with the capture is in ``failure``; what the engine raises is raised.
        """
        load_weights = loader.load_weights

        def tapped(model: torch.nn.Module, config: Any) -> Any:
            done = load_weights(model, config)
            self._noting(lambda: self._after_loading(model))
            return done

        loader.load_weights = tapped  # type: ignore[method-assign]
        self._noting(self._require_place)
        self._before = coverage.held(self.device, pool.blocks())
        model = loader.load_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        self._noting(lambda: self._after_all(model))
        return model

    def artifact(self) -> tuple[str, str]:
        """Root and folder of what was captured."""
        assert self.receipt is not None and self.receipt.artifact_root is not None
        root = self.receipt.artifact_root
        return root, str(self.store.folder_of(self.identity) / root)

    def _noting(self, step: Callable[[], None]) -> None:
        """A step of the capture; a failure ends the capture, and the load goes on.

        Other ranks wait to hear of a failure in the next thing that they decide together.
        """
        try:
            step()
        except Exception as failure:  # of whatever kind: the model is there, and is what the user came for
            self.failure = self.failure or failure

    def _require_place(self) -> None:
        if self.failure is None and not self.later:
            store_place.require_lasting(self.place)

    def _after_loading(self, model: torch.nn.Module) -> None:
        mine = "" if self.failure else self.only or _strategy(model)
        said = self.ranks.gather(json.dumps(mine), verdict.TIME_LIMIT_S)
        every = [json.loads(text) for text in said]
        if not all(every):
            raise self.failure or errors.PolicyRefusedError(f"capture the model: rank {every.index('')} can't")
        self._strategy = "loaded" if "loaded" in every else mine
        if self._strategy == "loaded" and self.later == "asked":
            raise errors.PolicyRefusedError(
                "the finished weights can't be captured, and what they are made from is there only until loading ends",
                stage="capture",
                remedy="set when to load",
            )
        if self._strategy == "loaded":
            self._write(model)
        elif self.device.type == "cpu":
            self._loaded = look_at(model)

    def _after_all(self, model: torch.nn.Module) -> None:
        if self._strategy in ("meta", "shape"):  # with a failure, too: the other ranks wait to hear of it
            self._write(model)
        elif not self._strategy and self.failure is None:
            raise errors.InternalError("capture the model: the engine's loader did not load weights by `load_weights`")

    def _require_covered(self, walked: Walked) -> None:
        """Refuse a finished model of which there may be bytes that the walk did not see."""
        hidden = coverage.hidden(self._before, coverage.held(self.device, pool.blocks()), walked)
        nbytes = sum(each.nbytes for each in hidden)
        if self._loaded is not None:
            nbytes += coverage.vanished_bytes(self._loaded, walked)
        if nbytes > coverage.SMALL_BYTES:
            raise errors.PolicyRefusedError(
                f"{nbytes} bytes that loading took are in no tensor of the finished model that was found",
                stage="capture",
            )

    def _write(self, model: torch.nn.Module) -> None:
        """Plan, agree, and write, or keep the plan for later: all ranks or none."""
        begin = time.monotonic()
        later = bool(self.later) and self._strategy != "loaded"  # what finished weights are made from is about to go
        with contextlib.ExitStack() as leases:
            try:
                if self.failure is not None:
                    raise self.failure
                plan = self._planned(model)
                nbytes = blob_bytes(plan)
                if not later:
                    leases.enter_context(room(self.place, self.identity, nbytes, self.ranks, replace=self.replace))
                outcome = Outcome(nbytes=nbytes)
            except Exception as failure:  # said to the other ranks
                outcome = Outcome.of(failure)
            self.outcomes = verdict.after(self.ranks, outcome, "capture the model")
            if later:
                self.planned = plan
            else:
                group = group_of(self.ranks, self.token, self.shard)
                self.receipt = captured(
                    plan, group, self.place, identity=self.identity, replace=self.replace, backend=BACKEND
                )
        self.seconds = time.monotonic() - begin

    def _planned(self, model: torch.nn.Module) -> dict[str, Any]:
        """What of the model is captured, as arguments of `coldsnap.capture`."""
        self.unfit = self._strategy != "loaded"
        walked = look_at(model)
        tensors, roles, attrs, scalars = snapshot.sources(walked)  # first: what it refuses has a name
        if self._strategy != "loaded":
            self._require_covered(walked)
        self.unfit = False
        stage = "loaded" if self._strategy == "loaded" else "final"
        scalars = {**scalars, STAGE: stage, STRATEGY: self._strategy}
        return {"tensors": tensors, "roles": roles, "attrs": attrs, "scalars": scalars}


def _strategy(model: torch.nn.Module) -> str:
    """The best strategy for a model that is loaded and not post-processed yet; empty where there is none."""
    chosen = os.environ.get("COLDSNAP_TEST_STRATEGY", "")  # between the adapter and its tests
    if chosen:
        return chosen
    if not compat.packs_natively(model):
        return "shape" if compat.why_not_meta(model) else "meta"
    why = compat.why_not_loaded(model)
    if why:
        raise errors.PolicyRefusedError(f"capture the model before post-processing: {why}")
    return "loaded"
