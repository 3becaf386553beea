"""Captures of several ranks: each writes its own shard, and all of them appear as one artifact or none does.

How the ranks hear of each other is `coldsnap.meeting`'s. Of ranks that name the same shard (data-parallel replicas) the
lowest writes it, and the others compare digests.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap import errors, log, receipts, settings
from coldsnap.receipts import Receipt
from coldsnap.store import Store
from coldsnap.ticker import Ticker, check_arguments

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SHARD = re.compile(r"shard(-(\d\d|[1-9]\d{2,4})){3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks of one capture, as each of them sees it.

    Attributes:
        token: Names this attempt: the same in every rank, and never used before.
        rank: Of this process, from 0.
        shards: The shard of each rank, by rank: ``shard-<pp>-<tp>-<ep>``. Ranks with the same one are replicas.
        timeout_s: Most seconds without a sign of life from a rank that the others wait for.
    """

    token: str
    rank: int
    shards: Sequence[str]
    timeout_s: float = 600.0

    @property
    def shard(self) -> str:
        return self.shards[self.rank]

    @property
    def writes(self) -> bool:
        """Whether this rank writes its shard, or an earlier one does."""
        return self.shards.index(self.shard) == self.rank


def capture_rank(
    tensors: Mapping[str, Any],
    group: RankGroup,
    *,
    store: Store | str | os.PathLike[str],
    identity: Mapping[str, Any],
    backend: str | None = None,
    place: str | None = None,
    preverified: bool = False,
    replace: bool = False,
    scalars: Mapping[str, Any] | None = None,
    roles: Mapping[str, str] | None = None,
    attrs: Mapping[str, Sequence[str]] | None = None,
    progress: Callable[[int, int], object] | None = None,
    cancel: threading.Event | None = None,
) -> Receipt:
    """This rank's part of a capture of several ranks; every rank calls it, with the same store and identity.

    Blocks until the artifact of all shards is published, or nothing is.

    Args:
        tensors: Of this rank, as of `coldsnap.capture`.
        group: The ranks.
        store: The store that all ranks share.
        identity: Of the artifact, equal in all ranks.
        backend: As of `coldsnap.capture`, as are the others; replicas that don't write compute digests in Python.
        place: Where a rank that writes computes digests.
        preverified: In writing ranks.
        replace: Whether rank 0 may make this current in the place of another artifact.
        scalars: Of this rank's shard, as are ``roles`` and ``attrs``.
        roles: As of `coldsnap.capture`.
        attrs: As of `coldsnap.capture`.
        progress: Called with bytes done and in total, of this rank.
        cancel: Set it to stop this rank, and with it all of them.
    Returns:
        This rank's receipt.
    Raises:
        What failed in this rank, as of `coldsnap.capture`; and
        TimedOutError: A rank said nothing for ``timeout_s`` seconds.
        PolicyRefusedError: The ranks disagree on identity or shards, or replicas on their bytes.
        What failed in another rank, with its number.
        Each has ``receipt``. Nothing is published, unless rank 0 had published already when this rank failed.
    """
    from coldsnap.meeting import Meeting  # with the writers, which `import coldsnap` should not wait for
    from coldsnap.shard_capture import ShardCapture
    from coldsnap.sources import sources_of
    from coldsnap.values import canonical

    begin = time.monotonic()
    account = receipts.Account("capture")
    try:
        check_arguments("capture", progress, cancel)
        _check_group(group)
        shared = store if isinstance(store, Store) else Store(store)
        account.settings = settings.resolve_capture(
            {"backend": backend, "place": place, "verify_mode": "preverified" if preverified else None}, os.environ
        )
        account.settings = {**account.settings, "store_max_bytes": shared.cap}
        meeting = Meeting(shared, group, canonical(identity, "identity"), cancel)
        with meeting.taking_part():
            tick = meeting.watched(Ticker(progress, cancel))
            text = canonical(scalars, "scalars")
            sources = sources_of(tensors, roles, attrs)
            work = ShardCapture(group.shard, sources, meeting.identity, text, tick, account)
            work.prepare()
            published, publish_s = meeting.lead(work, replace) if group.rank == 0 else meeting.follow(work)
        if not group.writes:
            detail = f"rank {group.shards.index(group.shard)} wrote {group.shard}, and this one has the same digests"
            account.reasons = [*account.reasons, {"code": "replica", "detail": detail}]
        work.finish(published, publish_s)
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        with contextlib.suppress(AttributeError, TypeError):  # somebody else's exception may have no room for it
            failure.receipt = log.done(account.receipt(failure))  # type: ignore[attr-defined]
        raise
    account.wall_s = time.monotonic() - begin
    return log.done(account.receipt())


def _check_group(group: RankGroup) -> None:
    doing = "capture a rank"
    if not isinstance(group, RankGroup):
        raise errors.RequestInvalidError(f"{doing}: the group is a {type(group).__name__}")
    if not _TOKEN.fullmatch(group.token):
        raise errors.RequestInvalidError(
            f"{doing}: {group.token[:120]!r} is no token", remedy="give 1 to 100 letters, digits, '.', '_' and '-'"
        )
    if not 0 <= group.rank < len(group.shards):
        raise errors.RequestInvalidError(f"{doing}: rank {group.rank} is none of {len(group.shards)}")
    for shard in group.shards:
        if not SHARD.fullmatch(shard):
            raise errors.RequestInvalidError(f"{doing}: {shard[:120]!r} is no shard", remedy="as shard-00-01-00")
    if not group.timeout_s > 0:
        raise errors.RequestInvalidError(f"{doing}: the time limit is {group.timeout_s} s", remedy="give more than 0")
