"""Capturing the weights of an engine that serves, from its own allocations.

    planned    at the end of loading: what is captured, with sums of what it was
    asked      by the adapter once the engine is ready, or over the control socket; all ranks or none
    captured   by a thread in each rank, at a bounded rate; then the sums are compared once more, and it is published

Nothing of the engine waits for it, but for one thing: memory that is about to be taken away (sleep mode) goes only once
nobody reads it any more. Weights that are not what was loaded are never published.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from coldsnap import errors
from coldsnap.adapters import sums, verdict
from coldsnap.adapters.beside import BesideRanks
from coldsnap.adapters.pace import Pace
from coldsnap.adapters.rank_capture import blob_bytes, captured, group_of, room
from coldsnap.adapters.verdict import Alone, Outcome
from coldsnap.receipts import Receipt
from coldsnap.settings import Setting
from coldsnap.store import Store

_DOING = "capture the running engine"
# The native core's threads can't be held back, and would have the drive, the link and the cores to themselves.
_BACKEND = "python"
_ANSWER_S = 120.0  # for a rank to say whether it takes part, which takes it one pass over its weights
_LOOK_S = 0.5  # at whether rank 0 has an order
_END_S = 10.0  # for a thread to end with its process; a piece of 4 MiB, or the sync of a file
_SHOWN = 3


class Did(NamedTuple):
    """What a start did: ``what`` is ``restored``, ``captured`` or ``loaded``; the artifact; why it loaded."""

    what: str
    artifact_root: str | None = None
    why: str = ""


class Plan(NamedTuple):
    """What is captured later, as one rank has it.

    Attributes:
        arguments: Of `coldsnap.capture`: tensors, roles, attrs, scalars. They keep the weights' memory alive.
        before: Of `coldsnap.adapters.sums.of`, as the engine loaded them.
        identity: Of the artifact.
        shard: Of this rank.
        token: Names the captures of this start among its ranks.
        place: The store where no other is named; an empty value: one has to be.
        replace: Whether another artifact of the identity may be current.
        rate: Bytes a second.
        once: Whether nobody can ask again after a capture that failed.
    """

    arguments: dict[str, Any]
    before: dict[str, str]
    identity: dict[str, Any]
    shard: str
    token: str
    place: Setting
    replace: bool
    rate: int
    once: bool = False


class Taken(NamedTuple):
    """A capture: rank 0's receipt, the artifact's folder, and how many tensors rank 0 has in it."""

    receipt: Receipt
    path: Path
    tensors: int


class Told(Protocol):
    """Who hears what became of a capture, in rank 0."""

    def captured(self, receipt: Receipt, nbytes: int, seconds: float) -> None: ...
    def failed(self, failure: BaseException) -> None: ...


class Live:
    """One rank of an engine that serves.

    Args:
        did: What its start did.
        ranks: The ranks.
        plan: What may be captured; None: nothing.
        told: Hears of captures, in rank 0.
    """

    def __init__(self, did: Did, ranks: Alone | BesideRanks, plan: Plan | None, told: Told) -> None:
        self._did, self._ranks, self._plan, self._told = did, ranks, plan, told
        self._once = plan is not None and plan.once
        self._numbers = itertools.count()
        self._busy, self._memory = threading.Lock(), threading.Lock()
        self._stop, self._ended = threading.Event(), threading.Event()
        self._asleep = self._changed = False
        self._failure = self._why_stopped = ""
        self._at = (0, 0)
        self._threads: list[threading.Thread] = []

    @property
    def planned(self) -> bool:
        """Whether there is anything to capture."""
        return self._plan is not None

    def begin(self, work: Callable[[], object]) -> None:
        """Run `first` or `follow` in a thread of its own."""
        thread = threading.Thread(target=work, name="coldsnap-live", daemon=True)
        self._threads.append(thread)
        thread.start()

    def first(self) -> None:
        """Rank 0: capture what is planned; whatever goes wrong is told, and nothing else changes."""
        with contextlib.suppress(Exception):  # `capture` has told it
            self.capture(None)
        self._let_go()

    def capture(self, store: str | None, tell: Callable[[int, int], object] = lambda done, total: None) -> Taken:
        """Rank 0: capture with all the others.

        Args:
            store: Another store than the planned one.
            tell: Told bytes done and in total, of this rank.
        Raises:
            ExistsError: This start was restored from an artifact, or is captured already.
            PolicyRefusedError: There is nothing to capture, a capture is under way, the engine sleeps, its weights are not
                what it loaded, or a rule of the store is against it.
            As `coldsnap.capture_rank`.
        """
        begin = time.monotonic()
        with self._alone():
            plan = self._require_plan()
            place = self._place(plan, store)
            number = next(self._numbers)
            if isinstance(self._ranks, BesideRanks):
                self._ranks.order(number, json.dumps([place.value, place.source]))
            try:
                receipt, nbytes = self._take_part(number, place, tell)
            except Exception as failure:
                self._failure = str(failure)
                self._told.failed(failure)
                raise
        self._told.captured(receipt, nbytes, time.monotonic() - begin)
        path = Store(place.value).folder_of(plan.identity) / str(receipt.artifact_root)
        return Taken(receipt, path, len(plan.arguments["tensors"]))

    def follow(self) -> None:
        """Another rank than 0: do what rank 0 orders, until it is captured or the engine ends."""
        for number in itertools.count():
            place = self._next_order(number)
            if place is None:
                return
            with contextlib.suppress(Exception):  # rank 0 heard of it, and tells it
                self._take_part(number, place, lambda done, total: None)
            if self._let_go():
                return

    def status(self) -> dict[str, Any]:
        """What this start did, what may be captured, and whether the weights are what was loaded; reads them for that."""
        running = self._busy.locked()
        return {
            "start": self._did.what,
            "artifact_root": self._did.artifact_root,
            "why": self._did.why,
            "ranks": self._ranks.size,
            "capture": "running" if running else "none" if self._plan is None else "planned",
            "done_bytes": self._at[0],
            "total_bytes": self._at[1],
            "failure": self._failure,
            "weights": self._weights(),
        }

    def before_sleep(self) -> None:
        """The weights are about to be taken away: returns once nobody reads them."""
        self._why_stopped = "it was put to sleep meanwhile"
        self._stop.set()
        with self._memory:
            self._asleep = True
        if not self._ended.is_set():
            self._stop.clear()

    def after_wake(self) -> None:
        """They are there again, as they were or not."""
        self._asleep = False

    def end(self) -> None:
        """The process ends: stop what is under way, so that nothing of it stays in the store."""
        self._why_stopped = "it ends"
        self._ended.set()
        self._stop.set()
        until = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise errors.PolicyRefusedError(
                f"{_DOING}: a capture of it is under way, {self._at[0]} of {self._at[1]} bytes",
                remedy="ask for its status",
            )
        try:
            yield
        finally:
            self._at = (0, 0)
            self._busy.release()

    def _next_order(self, number: int) -> Setting | None:
        """Where rank 0 wants the next capture; None where the engine ends."""
        assert isinstance(self._ranks, BesideRanks)
        try:
            while (text := self._ranks.ordered(number)) is None:
                if self._ended.wait(_LOOK_S):
                    return None
        except RuntimeError:  # of the store: the process that has it has ended, and so will this one
            return None
        return Setting(*json.loads(text))

    def _let_go(self) -> bool:
        """After a capture: keep the weights only as long as another one may be asked for; whether none may."""
        if self._once:
            self._plan = None
        return self._once or self._did.artifact_root is not None

    def _require_plan(self) -> Plan:
        root = self._did.artifact_root
        if root is not None:
            how = "is captured as" if self._did.what == "captured" else "was restored from"
            raise errors.ExistsError(f"{_DOING}: it {how} artifact {root}")
        if self._plan is None:
            raise errors.PolicyRefusedError(
                f"{_DOING}: {self._why_none()}", remedy='start it with {"coldsnap": {"when": "asked"}} or ready'
            )
        return self._plan

    def _why_none(self) -> str:
        if self._changed:
            return "its weights are not those any more that it loaded"
        return f"nothing was kept to capture it by: {self._did.why or 'it was to be captured while it loaded'}"

    def _place(self, plan: Plan, store: str | None) -> Setting:
        place = plan.place if store is None else Setting(store, "explicit")
        if not place.value:
            raise errors.PolicyRefusedError(f"{_DOING}: no store is known", remedy="name one")
        return place

    def _take_part(self, number: int, place: Setting, tell: Callable[[int, int], object]) -> tuple[Receipt, int]:
        """This rank's share; the receipt, and the bytes of all ranks."""
        with contextlib.ExitStack() as stack:
            try:
                plan = self._require_plan()
                with self._reading(plan):
                    self._require_unchanged(plan)
                nbytes = blob_bytes(plan.arguments)
                stack.enter_context(room(place, plan.identity, nbytes, self._ranks, replace=plan.replace))
                outcome = Outcome(nbytes=nbytes)
            except Exception as failure:  # said to the other ranks
                outcome = Outcome.of(failure)
            outcomes = verdict.after(self._ranks, outcome, _DOING, _ANSWER_S)
            group = group_of(self._ranks, f"{plan.token}-{number}", plan.shard)
            with self._reading(plan, f"{_DOING}: "):  # not while ranks hear each other, so that none is kept from sleep
                receipt = self._written(plan, group, place, tell)
        self._did, self._plan = Did("captured", receipt.artifact_root), None
        return receipt, verdict.total(outcomes)[0]

    def _written(self, plan: Plan, group: Any, place: Setting, tell: Callable[[int, int], object]) -> Receipt:
        pace = Pace(plan.rate, self._stop.wait)

        def progress(done: int, total: int) -> None:
            self._at = (done, total)
            tell(done, total)
            pace(done, total)
            if done == total:  # the last look at them, before it is published
                self._require_unchanged(plan)

        more = {"identity": plan.identity, "replace": plan.replace, "backend": _BACKEND}
        try:
            return captured(plan.arguments, group, place, **more, progress=progress, cancel=self._stop)
        except errors.Cancelled as end:
            stopped = errors.PolicyRefusedError(f"{_DOING}: {self._why_stopped}", stage="capture")
            stopped.receipt = end.receipt
            raise stopped from end

    @contextlib.contextmanager
    def _reading(self, plan: Plan, doing: str = "") -> Iterator[None]:
        with self._memory, _own_stream(plan):
            if self._asleep:
                raise errors.PolicyRefusedError(
                    f"{doing}it sleeps, and its weights are not there", remedy="wake it up first"
                )
            yield

    def _require_unchanged(self, plan: Plan) -> None:
        """Refuse weights that are not those that were loaded; what was kept of them is let go.

        Raises:
            PolicyRefusedError: They are others.
        """
        unlike = sums.changed(plan.before, sums.of(plan.arguments["tensors"]))
        if unlike:
            self._changed, self._plan = True, None
            raise errors.PolicyRefusedError(
                f"its weights are not those any more that it loaded: {len(unlike)} of {len(plan.before)} storages have "
                f"changed, {', '.join(unlike[:_SHOWN])}",
                stage="capture",
                remedy="start the engine again: it is captured as it loads",
            )

    def _weights(self) -> str | None:
        plan = self._plan
        if self._asleep:
            return "asleep"
        if plan is None or not self._memory.acquire(blocking=False):
            return "changed" if self._changed else None
        try:
            if self._asleep:
                return "asleep"
            with _own_stream(plan):
                unlike = sums.changed(plan.before, sums.of(plan.arguments["tensors"]))
        finally:
            self._memory.release()
        return "changed" if unlike else "unchanged"


@contextlib.contextmanager
def _own_stream(plan: Plan) -> Iterator[None]:
    """Copies that wait for nothing which the engine has submitted, and that nothing of it waits for."""
    devices = {tensor.device for tensor in plan.arguments["tensors"].values() if tensor.device.type == "cuda"}
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.cuda.stream(torch.cuda.Stream(device)))
        yield
