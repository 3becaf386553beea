"""One rank's share of the capture of a model, whichever engine it belongs to and whenever it happens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from coldsnap import errors, store_place
from coldsnap.adapters import verdict
from coldsnap.adapters.verdict import Ranks
from coldsnap.artifact import load_native
from coldsnap.capture import capture
from coldsnap.ranks import RankGroup, capture_rank
from coldsnap.receipts import Receipt
from coldsnap.settings import Setting
from coldsnap.sources import sources_of
from coldsnap.store import Store
from coldsnap.values import canonical, digest_of


def blob_bytes(plan: dict[str, Any]) -> int:
    """Bytes of the blob that a plan's tensors make."""
    nbytes: int = load_native().plan_layout(sources_of(plan["tensors"]).rows).blob_bytes
    return nbytes


@contextlib.contextmanager
def room(place: Setting, identity: dict[str, Any], nbytes: int, ranks: Ranks, *, replace: bool) -> Iterator[None]:
    """A place for this rank's share of a capture: it lasts, has room, and other engines keep away from it meanwhile.

    Raises:
        ExistsError: Another process has captured the identity.
        PolicyRefusedError: It does not last, or is being captured.
        NoSpaceError: It has no room.
    """
    store_place.require_lasting(place)
    store_place.require_free(place, nbytes * ranks.size)
    store = Store(place.value)
    current = store.current(identity) if ranks.rank == 0 and not replace else None
    if current is not None:
        raise errors.ExistsError(f"another process has captured it meanwhile, as {current.name}", stage="capture")
    # A capture of one rank has a folder under the identity's name anyway.
    lease = ranks.size > 1 and ranks.rank == 0
    held = store.create_incoming(digest_of(canonical(identity, "identity"))) if lease else None
    try:
        yield
    finally:
        if held is not None:
            held.close()


def group_of(ranks: Ranks, token: str, shard: str) -> RankGroup | None:
    """The ranks of a capture; None where there is only one."""
    if ranks.size == 1:
        return None
    shards = [json.loads(text) for text in ranks.gather(json.dumps(shard), verdict.TIME_LIMIT_S)]
    return RankGroup(token, ranks.rank, shards, verdict.TIME_LIMIT_S)


def captured(plan: dict[str, Any], group: RankGroup | None, place: Setting, **more: Any) -> Receipt:
    """Write what is planned into a store; ``more`` is as of `coldsnap.capture`."""
    store = Store(place.value)
    if group is None:
        return capture(**plan, store=store, **more)
    return capture_rank(group=group, **plan, store=store, **more)
