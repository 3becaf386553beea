"""Filling tensors from an artifact: checks and settings here, the bytes in a provider.

Order of a restore: settings, artifact, destinations, and only then the first byte. A restore that fails before it
leaves every destination as it was; one that fails after it leaves them all 0xFF. Either way the exception carries the
receipt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from coldsnap import errors, layout, python_provider, receipts, settings
from coldsnap.artifact import Artifact, load_native, open_artifact
from coldsnap.layout import Range
from coldsnap.receipts import Receipt
from coldsnap.tensors import views_of

_TICK_S = 0.05  # progress is called at most this often, but for the first and the last time


def hydrate(
    artifact: Artifact | str | os.PathLike[str],
    tensors: Mapping[str, Any],
    *,
    backend: str | None = None,
    verify: str | None = None,
    place: str | None = None,
    chunk_bytes: int | str | None = None,
    queue_depth: int | None = None,
    read_threads: int | None = None,
    streams: Sequence[Any] = (),
    partial: bool = False,
    progress: Callable[[int, int], object] | None = None,
    cancel: threading.Event | None = None,
) -> Receipt:
    """Fill tensors in place with the bytes that an artifact holds, and compare every digest before returning.

    Blocks. The destinations belong to the restore until it returns: nobody else may read or write them.

    Args:
        artifact: An opened artifact, or the path of one.
        tensors: Name to numpy array, torch CPU tensor or torch CUDA tensor, all on one device, with the captured
            dtype, shape (elements) and strides (elements), sharing memory where the captured ones did. numpy takes
            BF16, F8 and F4 as unsigned integers of the same width. They are kept alive until this returns.
        backend: ``python``, ``auto``, ``buffered`` or ``direct``; default ``python``. An explicit one works or raises.
        verify: ``crc32`` or ``crc32+sha256`` (default): the digests compared.
        place: Where they are computed: ``host``, or ``auto``, which is the host in this version.
        chunk_bytes: Bytes of one read and of one ring slot, a multiple of 65536, or text such as ``"4MiB"`` (default).
        queue_depth: Ring slots in flight, 1 to 64; default twice the read threads, fewer where the cap on pinned memory
            asks for it. Native backends only.
        read_threads: Concurrent reads; default the usable cores, at most 16. Native backends only.
        streams: CUDA streams (``cudaStream_t`` as int, or objects with ``cuda_stream``) whose earlier work comes
            before the restore, and whose later work after it; the device's current torch stream when empty.
        partial: Whether captured tensors may be missing from ``tensors``. Tensors that shared memory when they
            were captured are restored together, also when only one of them is named.
        progress: Called with (bytes done, bytes in total), at most 20 times a second, last with both equal. An
            exception of it cancels the restore and is raised.
        cancel: Set it to stop.
    Returns:
        The receipt: routes, reasons, settings with their sources, stage times in seconds, bytes per second.
    Raises:
        RequestInvalidError: An argument, an environment variable or a tensor is of the wrong kind. Nothing was touched.
        LayoutError: Destinations differ from what was captured; both sides are named. Nothing was touched.
        RouteUnavailableError: The backend or place does not work here; the message says why. Nothing was touched.
        NotAdmittedError: ``verify="none"``.
        FormatInvalidError: The artifact breaks the format. Nothing was touched.
        DataLossError: A file is short (refused before the first byte), or a digest differs: the extent, a tensor in
            it and the 64 KiB piece are named, and all destinations are 0xFF.
        PolicyRefusedError: Another restore of this process is running into the same memory.
        Cancelled: ``cancel`` was set; destinations that were touched are all 0xFF.
        IoError, CudaError, OutOfMemoryError: The machine failed; destinations that were touched are all 0xFF.
        DeviceLostError: Poisoning failed after another failure: end the process.
        Each has ``receipt``, the receipt of the failure.
    Source:
        Settings: docs/architecture.md, section 6; verification and publishing: section 7; receipt: section 9a.
    """
    begin = time.monotonic()
    account = receipts.Account("hydrate")
    given = {
        "backend": backend,
        "verify": verify,
        "place": place,
        "chunk_bytes": chunk_bytes,
        "queue_depth": queue_depth,
        "read_threads": read_threads,
    }
    try:
        _check_arguments(partial, progress, cancel)
        account.settings = settings.resolve(given, os.environ)
        with _opened(artifact, account) as opened:
            restore = _prepare(opened, tensors, streams, partial, account)
            with _claimed(restore.device, restore.ranges):
                restore.run(_Ticker(progress, cancel))
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        _attach(failure, account.receipt(failure))
        raise
    account.wall_s = time.monotonic() - begin
    return account.receipt()


class _Ticker:
    """What a provider calls while it works: reports progress, and says whether to stop."""

    def __init__(self, progress: Callable[[int, int], object] | None, cancel: threading.Event | None) -> None:
        self._progress = progress
        self._cancel = cancel
        self._reported = -1
        self._next = 0.0

    def __call__(self, done: int, total: int) -> bool:
        if self.cancelled:
            return True
        now = time.monotonic()
        if self._progress is not None and done > self._reported and (now >= self._next or done == total):
            self._reported, self._next = done, now + _TICK_S
            self._progress(done, total)
        return self.cancelled  # the callback may just have asked for it

    @property
    def cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()


@dataclasses.dataclass
class _Restore:
    """A checked restore: what is left to do is to move bytes."""

    artifact: Artifact
    tensors: Mapping[str, Any]  # keeps them alive
    ranges: list[Range]
    device: str
    streams: list[int]
    account: receipts.Account

    def run(self, ticker: _Ticker) -> None:
        total = self.account.payload_bytes
        if ticker.cancelled:
            raise errors.Cancelled(f"hydrate {total} bytes: cancelled before the first of them")
        if self.account.provider == "python":
            self._run_python(ticker)
        else:
            self._run_native(ticker)
        ticker(total, total)

    def _value(self, name: str) -> Any:
        return self.account.settings[name].value

    def _run_python(self, ticker: _Ticker) -> None:
        memory = python_provider.memory_for(
            self.device, self.tensors, self.ranges, self._value("chunk_bytes"), self.streams
        )
        before = self.artifact.native.residency()
        self.account.residency = {"before": before, "after": None}
        stages_s = dict(self.account.stages_s)
        self.account.stages_s = stages_s
        python_provider.hydrate(
            self.artifact,
            self.ranges,
            memory,
            verify=self._value("verify"),
            chunk_bytes=self._value("chunk_bytes"),
            tick=ticker,
            stages_s=stages_s,
        )
        self.account.residency = {"before": before, "after": self.artifact.native.residency()}
        if self.ranges:
            done = {"route": "python", "bytes": self.account.payload_bytes, "extents": len(self.ranges)}
            self.account.routes = [done]

    def _run_native(self, ticker: _Ticker) -> None:
        native = load_native()
        found = self._hydrator_of(native)(self.device).hydrate(
            self.artifact.native,
            self.ranges,
            self._value("backend"),
            self._value("verify"),
            settings.native_settings(self.account.settings, native.limits()),
            self.streams,
            ticker,
        )
        account = self.account
        account.routes = found["routes"]
        account.reasons = [*account.reasons, *found["reasons"]]
        account.residency = found["residency"]
        opening = account.stages_s.get("open", 0.0)
        account.stages_s = {**found["stages_s"], "open": opening + found["stages_s"]["open"]}
        if any(reason["code"] == "ring_shrunk" for reason in found["reasons"]):
            depth = settings.Setting(found["queue_depth"], account.settings["queue_depth"].source)
            account.settings = {**account.settings, "queue_depth": depth}

    def _hydrator_of(self, native: Any) -> Any:
        """The module's, or that of the library which the environment names."""
        named = settings.native_library(os.environ)
        if named is None:
            return native.Hydrator
        from coldsnap import native_library  # with ctypes, which `import coldsnap` leaves alone

        library = native_library.load(*named)
        self.account.library = library.version
        return library.hydrator


def _prepare(
    artifact: Artifact, tensors: Mapping[str, Any], streams: Sequence[Any], partial: bool, account: receipts.Account
) -> _Restore:
    """Check everything that can be checked before the first byte, and write it down in the account."""
    account.artifact_root = artifact.artifact_root
    views = views_of(tensors)
    ranges = layout.match(artifact, views, partial)
    device = layout.device_of(views)
    handles = _stream_handles(streams, device)
    backend = account.settings["backend"]
    account.payload_bytes = sum(nbytes for _, _, nbytes in ranges)
    account.place = "host"
    account.provider = "python" if backend.value == "python" else "native"
    if device != "host":
        account.gpu = load_native().device_name(device)
    _settle(account, backend)
    return _Restore(artifact, dict(tensors), ranges, device, handles, account)


def _settle(account: receipts.Account, backend: settings.Setting) -> None:
    """Complete the settings for the provider, with the reasons for what was not asked for in these words."""
    by = {"explicit": "the argument backend", "environment": "COLDSNAP_HYDRATION_BACKEND"}.get(backend.source)
    chosen = {"code": "explicit", "detail": f"{by} is {backend.value}"}
    if account.provider == "native":
        account.settings, reasons = settings.fit_ring(account.settings, load_native().limits())
        account.reasons = [chosen, *reasons]
        return
    default = {"code": "provider_default", "detail": "the library's default provider is python"}
    reasons = [chosen if by else default]
    if settings.native_library(os.environ) is not None:
        unused = f"provider python calls no native library: {settings.NATIVE_LIBRARY}"
        reasons.append({"code": "setting_unused", "detail": unused})
    full = dict(account.settings)
    for name in ("queue_depth", "read_threads"):
        if full[name].chosen:
            reasons.append({"code": "setting_unused", "detail": f"provider python reads one chunk at a time: {name}"})
        else:
            full[name] = settings.Setting(1, "default")
    account.settings, account.reasons = full, reasons


@contextlib.contextmanager
def _opened(artifact: object, account: receipts.Account) -> Iterator[Artifact]:
    if isinstance(artifact, Artifact):
        yield artifact
        return
    begin = time.monotonic()
    with open_artifact(artifact) as opened:  # type: ignore[arg-type]  # it says what is wrong with another type
        account.stages_s = {"open": time.monotonic() - begin}
        yield opened


_running_lock = threading.Lock()
_running: list[tuple[str, list[Range]]] = []


def _forget_running() -> None:
    """In a forked child: the threads that restore in its parent are not there, nor is whoever held the lock."""
    global _running_lock
    _running_lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget_running)


@contextlib.contextmanager
def _claimed(device: str, ranges: list[Range]) -> Iterator[None]:
    """Keep other restores of this process off the ranges for as long as this one runs."""
    mine = (device, ranges)
    with _running_lock:
        for other_device, others in _running:
            clash = next(layout.overlaps(ranges + others), None) if other_device == device else None
            if clash is not None:
                raise errors.PolicyRefusedError(
                    f"hydrate {len(ranges)} ranges on {device}: another restore is running into the same memory "
                    f"(extent {clash[0][0]} of one, extent {clash[1][0]} of the other)",
                    stage="publish",
                    remedy="wait for it",
                )
        _running.append(mine)
    try:
        yield
    finally:
        with _running_lock:
            _running[:] = [other for other in _running if other is not mine]


def _check_arguments(partial: object, progress: object, cancel: object) -> None:
    if not isinstance(partial, bool):
        raise errors.RequestInvalidError(f"hydrate: partial is a {type(partial).__name__}", remedy="give True or False")
    if progress is not None and not callable(progress):
        raise errors.RequestInvalidError(
            f"hydrate: progress is a {type(progress).__name__}", remedy="give a function of (done_bytes, total_bytes)"
        )
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise errors.RequestInvalidError(
            f"hydrate: cancel is a {type(cancel).__name__}", remedy="give a threading.Event"
        )


def _stream_handles(streams: object, device: str) -> list[int]:
    """The streams as ``cudaStream_t`` numbers; the current torch stream where none is given."""
    remedy = "give a sequence of cudaStream_t numbers, or of objects with cuda_stream"
    if isinstance(streams, str | bytes) or not isinstance(streams, Sequence):
        raise errors.RequestInvalidError(f"hydrate: streams is a {type(streams).__name__}", remedy=remedy)
    handles: list[Any] = [getattr(stream, "cuda_stream", stream) for stream in streams]
    for handle in handles:
        if isinstance(handle, bool) or not isinstance(handle, int) or not 0 <= handle < 1 << 64:
            raise errors.RequestInvalidError(f"hydrate: {handle!r} in streams is no stream", remedy=remedy)
    if device == "host":
        if handles:
            raise errors.RequestInvalidError(
                f"hydrate into host memory: {len(handles)} CUDA streams were given, and none can order that",
                remedy="leave streams out",
            )
        return []
    return handles or [sys.modules["torch"].cuda.current_stream(device).cuda_stream]


def _attach(failure: BaseException, receipt: Receipt) -> None:
    # An exception of somebody else's may have no room for it.
    with contextlib.suppress(AttributeError, TypeError):
        failure.receipt = receipt  # type: ignore[attr-defined]
