"""Capturing tensors as an artifact: arguments, settings and the place here, the bytes in a provider.

Order of a capture: settings, tensors and the place are checked; one shard is written beside the place; only then is it
moved there, once and whole. A capture that fails leaves nothing. Either way the exception carries the receipt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap import errors, log, receipts, settings
from coldsnap.artifact import load_native
from coldsnap.receipts import Receipt
from coldsnap.store import Published, Store, collected
from coldsnap.ticker import Ticker, check_arguments
from coldsnap.values import canonical, digest_of

if TYPE_CHECKING:
    from coldsnap.shard_capture import ShardCapture

SHARD = "shard-00-00-00"


def capture(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    identity: Mapping[str, Any] | None = None,
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
    """Write tensors as an artifact, durably, and publish it whole or not at all.

    Blocks. Nobody may write to the tensors meanwhile: they are read a second time, and a difference fails the capture.

    Args:
        tensors: Name to numpy array, torch tensor, or object with DLPack or the CUDA array interface, all on one
            device. Views that share memory are captured as sharing it. They are kept alive until this returns.
        path: The artifact's folder; it must not be there, its parent must. Give this or ``store``.
        store: A `Store` or its folder: the artifact goes to the place that its identity and content name, and becomes
            the identity's current one.
        identity: What the tensors are: a dict that JSON can hold. Equal identities are meant to have equal bytes. A
            store needs one.
        backend: ``python``, ``auto``, ``buffered`` or ``direct``; default ``python``. An explicit one works or raises.
        place: Where digests are computed: ``host`` (of the staged bytes), ``device`` (by a kernel, of the tensors before
            and after the copy), ``both``, or ``auto``: the device where that works. An explicit one works or raises.
        preverified: Read the durable blob again past the page cache, compare every digest before publishing, and then
            write a trust marker, so that restores here may leave out digests.
        replace: In a store, whether this may become current in the place of another artifact of the identity.
        scalars: Values to keep beside the tensors: a dict that JSON can hold.
        roles: What tensors are to their engine, by name; shown in `TensorInfo.role`.
        attrs: ``key=value`` strings by tensor name, shown in `TensorInfo.attrs`.
        progress: Called with (bytes done, bytes in total), at most 20 times a second, last with both equal. The total
            counts each pass over the bytes. An exception of it cancels the capture and is raised.
        cancel: Set it to stop.
    Returns:
        The receipt: artifact root, routes, reasons, settings with their sources, stage times in seconds.
    Raises:
        RequestInvalidError: Both or neither of path and store, or an argument, variable or tensor of the wrong kind.
        ExistsError: Something is at ``path``; or another artifact is current for the identity, and ``replace`` is False.
        RouteUnavailableError: The backend, the place, or reading past the page cache does not work here; the message
            says why.
        NoSpaceError: The file system has no room.
        DataLossError: A tensor changed while it was captured, the drive gave back other bytes, or the store has this
            artifact already and it is damaged.
        PolicyRefusedError: Another capture to the path, or of the identity, is under way; the store's cap has no room;
            or the trust folder can't be trusted.
        Cancelled: ``cancel`` was set.
        IoError, CudaError, OutOfMemoryError: The machine failed.
        In each case nothing new is published, and nothing half-written stays. Each has ``receipt``.
    Source:
        Format: docs/format.md; store: docs/store.md; receipt: docs/architecture.md, section 9a.
    """
    from coldsnap.shard_capture import ShardCapture  # with the writers, which `import coldsnap` should not wait for
    from coldsnap.sources import sources_of

    begin = time.monotonic()
    account = receipts.Account("capture")
    try:
        check_arguments("capture", progress, cancel)
        request = _Request.checked(path, store, identity, scalars, preverified, replace)
        account.settings = settings.resolve_capture(
            {"backend": backend, "place": place, "verify_mode": "preverified" if preverified else None}, os.environ
        )
        if isinstance(request.place, Store):
            account.settings = {**account.settings, "store_max_bytes": request.place.cap}
        ticker = Ticker(progress, cancel)
        sources = sources_of(tensors, roles, attrs)
        work = ShardCapture(SHARD, sources, request.identity, request.scalars, ticker, account, resume=True)
        work.prepare()
        request.make_room(work, account)
        with request.incoming(keep_shards=account.provider == "native") as incoming:
            record = work.write(incoming.path)
            publishing = time.monotonic()
            account.reasons = [*account.reasons, *request.shared(incoming)]
            published = request.publish(incoming, record, work.about())
        work.finish(published, time.monotonic() - publishing)
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        with contextlib.suppress(AttributeError, TypeError):  # somebody else's exception may have no room for it
            failure.receipt = log.done(account.receipt(failure))  # type: ignore[attr-defined]
        raise
    account.wall_s = time.monotonic() - begin
    return log.done(account.receipt())


@dataclasses.dataclass(frozen=True)
class _Request:
    """Where to, and under which name; the JSON texts are canonical."""

    place: Path | Store
    identity: str
    scalars: str
    replace: bool

    @classmethod
    def checked(
        cls, path: object, store: object, identity: object, scalars: object, preverified: object, replace: object
    ) -> _Request:
        if (path is None) == (store is None):
            raise errors.RequestInvalidError(
                f"capture: {'both' if path is not None else 'neither'} of path and store were given",
                remedy="give path for one artifact at a place of your own, or store",
            )
        for name, value in (("preverified", preverified), ("replace", replace)):
            if not isinstance(value, bool):
                raise errors.RequestInvalidError(
                    f"capture: {name} is a {type(value).__name__}", remedy="give True or False"
                )
        if replace and store is None:
            raise errors.RequestInvalidError(
                "capture: replace was given with a path, and an artifact is never replaced in place",
                remedy="give another path, or a store",
            )
        if store is not None and identity is None:
            raise errors.RequestInvalidError(
                "capture into a store: there is no identity, by which it names artifacts",
                remedy="give a dict that says what the tensors are",
            )
        place = _free_place(path) if store is None else store if isinstance(store, Store) else Store(store)  # type: ignore[arg-type]
        return cls(place, canonical(identity, "identity"), canonical(scalars, "scalars"), bool(replace))

    def make_room(self, work: ShardCapture, account: receipts.Account) -> None:
        """Keep the store within its cap, before anything is written."""
        if isinstance(self.place, Store) and self.place.cap.value is not None:
            removed = self.place.make_room(work.blob_bytes(), self.identity, self.replace)
            account.reasons = [*account.reasons, *collected(removed)]

    @contextlib.contextmanager
    def incoming(self, *, keep_shards: bool) -> Iterator[Any]:
        """The folder to build in, which is gone again unless it was published; it may have a killed capture's shard."""
        if isinstance(self.place, Store):
            name = digest_of(self.identity)  # one capture of an identity at a time
            incoming = self.place.create_incoming(name, keep_shards=keep_shards)
        else:
            parent, name = str(self.place.parent), f".{self.place.name}.incoming"
            incoming = load_native().create_incoming(parent, name, keep_shards)
        try:
            yield incoming
        finally:
            incoming.close()

    def shared(self, incoming: Any) -> list[dict[str, str]]:
        """Share what the store has already; reasons for the receipt."""
        if not isinstance(self.place, Store):
            return []
        from coldsnap.sharing import share

        return share(self.place, Path(incoming.path) / SHARD)

    def publish(self, incoming: Any, record: str, about: str) -> Published:
        """Move the finished artifact to its place."""
        if isinstance(self.place, Store):
            return self.place.publish(incoming, [record], self.identity, about, self.replace)
        found = load_native().publish_artifact(incoming, [record], self.identity, about, str(self.place))
        return Published(found["artifact_root"], self.place, False)


def _free_place(path: object) -> Path:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise errors.RequestInvalidError(
            f"capture: the path is {path!r}", remedy="give the artifact's folder as str or PathLike[str]"
        )
    place = Path.cwd() / text
    if os.path.lexists(place):
        raise errors.ExistsError(f"capture to {text}: it is there already", stage="publish", remedy="name a new path")
    if not place.parent.is_dir():
        raise errors.RequestInvalidError(
            f"capture to {text}: there is no folder {place.parent}", remedy="name a path whose parent folder exists"
        )
    return place
