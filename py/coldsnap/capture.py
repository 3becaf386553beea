"""Capturing tensors as an artifact: arguments, settings and the place here, the bytes in a provider.

Order of a capture: settings, tensors and the place are checked; one shard is written beside the place; only then is it
moved there, once and whole. A capture that fails leaves nothing. Either way the exception carries the receipt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coldsnap import errors, python_capture, receipts, settings, state, trust
from coldsnap.artifact import load_native, open_artifact
from coldsnap.receipts import Receipt
from coldsnap.sources import Sources, sources_of
from coldsnap.store import Published, Store, artifact_root
from coldsnap.ticker import Ticker, check_arguments
from coldsnap.values import canonical
from coldsnap.version import VERSION

SHARD = "shard-00-00-00"
_RING = ("chunk_bytes", "queue_depth", "write_threads")


def capture(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    identity: Mapping[str, Any] | None = None,
    backend: str | None = None,
    preverified: bool = False,
    replace: bool = False,
    scalars: Mapping[str, Any] | None = None,
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
        identity: What the tensors are: a dict that JSON can hold. Equal identities are meant to have equal bytes.
        backend: ``python``, ``auto``, ``buffered`` or ``direct``; default ``python``. An explicit one works or raises.
        preverified: Read the durable blob again past the page cache, compare every digest before publishing, and then
            write a trust marker, so that restores here may leave out digests.
        replace: In a store, whether this may become current in the place of another artifact of the identity.
        scalars: Values to keep beside the tensors: a dict that JSON can hold.
        progress: Called with (bytes done, bytes in total), at most 20 times a second, last with both equal. The total
            counts each pass over the bytes. An exception of it cancels the capture and is raised.
        cancel: Set it to stop.
    Returns:
        The receipt: artifact root, routes, reasons, settings with their sources, stage times in seconds.
    Raises:
        RequestInvalidError: Both or neither of path and store, or an argument, variable or tensor of the wrong kind.
        ExistsError: Something is at ``path``; or another artifact is current for the identity, and ``replace`` is False.
        RouteUnavailableError: The backend, or reading past the page cache, does not work here; the message says why.
        NoSpaceError: The file system has no room.
        DataLossError: A tensor changed while it was captured, the drive gave back other bytes, or the store has this
            artifact already and it is damaged.
        PolicyRefusedError: Another capture is building in the same place, or the trust folder can't be trusted.
        Cancelled: ``cancel`` was set.
        IoError, CudaError, OutOfMemoryError: The machine failed.
        In each case nothing new is published, and nothing half-written stays. Each has ``receipt``.
    Source:
        Format: docs/format.md; store: docs/store.md; receipt: docs/architecture.md, section 9a.
    """
    begin = time.monotonic()
    account = receipts.Account("capture")
    try:
        check_arguments("capture", progress, cancel)
        request = _Request.checked(path, store, identity, scalars, preverified, replace)
        account.settings = settings.resolve_capture(
            {"backend": backend, "verify_mode": "preverified" if preverified else None}, os.environ
        )
        work = _Capture(request, sources_of(tensors), Ticker(progress, cancel), account)
        work.run()
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        with contextlib.suppress(AttributeError, TypeError):  # somebody else's exception may have no room for it
            failure.receipt = account.receipt(failure)  # type: ignore[attr-defined]
        raise
    account.wall_s = time.monotonic() - begin
    return account.receipt()


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
        place = _free_place(path) if store is None else store if isinstance(store, Store) else Store(store)  # type: ignore[arg-type]
        return cls(place, canonical(identity, "identity"), canonical(scalars, "scalars"), bool(replace))


def _free_place(path: object) -> Path:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise errors.RequestInvalidError(
            f"capture: the path is {path!r}", remedy="give the artifact's folder as str or PathLike[str]"
        )
    place = Path(os.path.abspath(text))
    if os.path.lexists(place):
        raise errors.ExistsError(f"capture to {text}: it is there already", stage="publish", remedy="name a new path")
    if not place.parent.is_dir():
        raise errors.RequestInvalidError(
            f"capture to {text}: there is no folder {place.parent}", remedy="name a path whose parent folder exists"
        )
    return place


@dataclasses.dataclass
class _Capture:
    """One capture under way: of what, to where, and its account."""

    request: _Request
    sources: Sources
    ticker: Ticker
    account: receipts.Account

    def run(self) -> None:
        account, place = self.account, self.request.place
        self._settle()
        self._require_trust_folder()
        with self._incoming() as incoming:
            found = self._write(incoming.path)
            shards = [found["record"]]
            total = account.payload_bytes * (2 + self._preverified)  # passes: copied, source checked, read again
            if self.ticker(total, total):
                raise errors.Cancelled(f"capture {account.payload_bytes} bytes: cancelled before it was published")
            begin = time.monotonic()
            if isinstance(place, Store):
                published = place.publish(incoming, shards, self.request.identity, self._about(), self.request.replace)
            else:
                load_native().publish_artifact(incoming, shards, self.request.identity, self._about(), str(place))
                published = Published(artifact_root(self.request.identity, shards), place, False)
            stages_s = dict(account.stages_s)
            stages_s["publish"] = stages_s.get("publish", 0.0) + time.monotonic() - begin
            account.stages_s = stages_s
        account.artifact_root = published.artifact_root
        if published.already_present:
            detail = f"the store has {published.artifact_root} already, and every digest of it was compared"
            account.reasons = [*account.reasons, {"code": "already_present", "detail": detail}]
        self._admit(published.path)

    def _value(self, name: str) -> Any:
        return self.account.settings[name].value

    @property
    def _preverified(self) -> bool:
        return bool(self._value("verify_mode") == "preverified")

    def _settle(self) -> None:
        """Complete the settings for the provider, with the reasons for what was not asked for in these words."""
        account, native = self.account, load_native()
        backend = account.settings["backend"]
        by = {"explicit": "the argument backend", "environment": "COLDSNAP_CAPTURE_BACKEND"}.get(backend.source)
        default = {"code": "provider_default", "detail": "the library's default provider is python"}
        account.reasons = [{"code": "explicit", "detail": f"{by} is {backend.value}"} if by else default]
        account.provider = "python" if backend.value == "python" else "native"
        account.place = "host"
        if self.sources.device != "host":
            account.gpu = native.device_name(self.sources.device)
        full = dict(account.settings)
        if account.provider == "native":
            full, reasons = settings.fit_ring(full, native.limits())
            account.reasons = [*account.reasons, *reasons]
        else:
            full |= {name: settings.Setting(1, "default") for name in ("queue_depth", "read_threads")}
        full["write_threads"] = full.pop("read_threads")
        account.settings = full | {"verify": settings.Setting("crc32+sha256", "default")}

    def _require_trust_folder(self) -> None:
        """Refuse what the marker would fail on, before gigabytes are written."""
        if self._preverified:
            with state.opened(state.TRUST, os.environ, make=True):
                pass

    @contextlib.contextmanager
    def _incoming(self) -> Iterator[Any]:
        place = self.request.place
        if isinstance(place, Store):
            incoming = place.create_incoming(os.urandom(16).hex())
        else:
            incoming = load_native().create_incoming(str(place.parent), f".{place.name}.incoming")
        try:
            yield incoming
        finally:
            incoming.close()

    def _write(self, folder: str) -> dict[str, Any]:
        account = self.account
        write = self._write_python if account.provider == "python" else self._write_native
        found = write(folder, self._streams())
        account.routes = found["routes"]
        account.stages_s = found["stages_s"]
        if account.provider == "native":
            used = {name: settings.Setting(found[name], account.settings[name].source) for name in _RING}
            account.settings = {**account.settings, **used}  # the ring may have shrunk
        account.payload_bytes = found["payload_bytes"]
        account.residency = {"before": None, "after": found["residency_after"]}
        uncovered = found["uncovered_bytes"]
        reasons = [*account.reasons, *found["reasons"]]
        if uncovered:
            detail = f"{uncovered} bytes of storages are outside every tensor, and were captured with them"
            reasons.append({"code": "uncovered_bytes", "detail": detail})
        account.reasons = reasons
        return found

    def _write_python(self, folder: str, streams: list[int]) -> dict[str, Any]:
        self.account.stages_s = stages_s = {}
        return python_capture.capture_shard(
            folder,
            SHARD,
            self.sources,
            self.request.identity,
            self.request.scalars,
            chunk_bytes=self._value("chunk_bytes"),
            preverified=self._preverified,
            check_source=True,
            streams=streams,
            tick=self.ticker,
            stages_s=stages_s,
        )

    def _write_native(self, folder: str, streams: list[int]) -> dict[str, Any]:
        found: dict[str, Any] = load_native().capture_shard(
            folder,
            SHARD,
            self.sources.rows,
            self.request.identity,
            self.request.scalars,
            self.sources.device,
            backend=self._value("backend"),
            chunk_bytes=self._value("chunk_bytes"),
            queue_depth=self._value("queue_depth"),
            write_threads=self._value("write_threads"),
            pinned_max_bytes=self._value("pinned_max_bytes"),
            preverified=self._preverified,
            check_source=True,
            streams=streams,
            progress=self.ticker,
        )
        return found

    def _streams(self) -> list[int]:
        """What was submitted to the current torch stream comes before the first copy."""
        if self.sources.device == "host":
            return []
        return [sys.modules["torch"].cuda.current_stream(self.sources.device).cuda_stream]

    def _about(self) -> str:
        """The account of the capture, for artifact.json; no digest covers it."""
        backend = self._value("backend")
        about = {"backend": backend, "host": os.uname().nodename, "time_ns": str(time.time_ns()), "version": VERSION}
        return canonical(about, "the account of the capture")

    def _admit(self, path: Path) -> None:
        """Write the trust marker of a capture whose durable bytes were compared before it was published."""
        if not self._preverified:
            return
        with open_artifact(path) as artifact:
            try:
                trust.write_marker(artifact, trust.facts_of(artifact), os.environ)
                reason = {"code": "admitted", "detail": f"{artifact.shard} {artifact.native.manifest_sha256}"}
            except (errors.PolicyRefusedError, errors.NotAdmittedError) as cause:
                reason = {"code": "not_admitted", "detail": f"{cause.message}; verify it with admit"}
        self.account.reasons = [*self.account.reasons, reason]
