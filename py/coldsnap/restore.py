"""One restore: everything checked before the first byte, and then the bytes moved by a provider.

Order: settings, artifact, destinations, admission, and only then the first byte.
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

from coldsnap import errors, foreign, layout, profile, python_provider, quarantine, receipts, settings, trust
from coldsnap.artifact import Artifact, load_native, open_artifact
from coldsnap.layout import Range
from coldsnap.tensors import views_of
from coldsnap.ticker import Ticker
from coldsnap.verify import note_damage
from coldsnap.verify import verify as verify_artifact


@dataclasses.dataclass(frozen=True)
class NativeHydrator:
    """A native hydrator of one device, and which library it is, where it is not the module's."""

    native: Any
    library: str | None = None


@dataclasses.dataclass
class Restore:
    """A checked restore: what is left to do is to move bytes."""

    artifact: Artifact
    tensors: Mapping[str, Any]  # keeps them alive
    ranges: list[Range]
    device: str
    streams: list[int]
    account: receipts.Account
    hydrators: Callable[[str], NativeHydrator]  # for a device
    admission: trust.Admission | None  # there is one where no digest is compared

    def run(self, ticker: Ticker) -> None:
        total = self.account.payload_bytes
        if ticker.cancelled:
            raise errors.Cancelled(f"hydrate {total} bytes: cancelled before the first of them")
        try:
            if self.account.provider == "python":
                self._run_python(ticker)
            else:
                self._run_native(ticker)
        except errors.DataLossError as failure:
            # A drive can lose bytes and leave the time stamps as they were: the marker would still vouch for the file.
            self.account.reasons = [*self.account.reasons, *note_damage([self.artifact], failure, "hydrate")]
            raise
        ticker(total, total)

    def _value(self, name: str) -> Any:
        return self.account.settings[name].value

    def _run_python(self, ticker: Ticker) -> None:
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

    def _run_native(self, ticker: Ticker) -> None:
        native = load_native()
        throttled_s = native.throttled_seconds()
        hydrator = self.hydrators(self.device)
        self.account.library = hydrator.library
        found = hydrator.native.hydrate(
            self.artifact.native,
            self.ranges,
            self._value("backend"),
            self._value("verify"),
            settings.native_settings(self.account.settings, native.limits()),
            self.streams,
            ticker,
            self._confirm,
            place=self._value("place"),
        )
        account = self.account
        account.place = found["place"]
        account.routes = found["routes"]
        account.reasons = [*account.reasons, *found["reasons"], *_throttling(throttled_s, native.throttled_seconds())]
        account.gds_path = found["gds_path"]
        if account.gds_path is not None:
            account.reasons.append({"code": "gds_proved", "detail": found["gds_evidence"]})
        account.residency = found["residency"]
        opening = account.stages_s.get("open", 0.0)
        account.stages_s = {**found["stages_s"], "open": opening + found["stages_s"]["open"]}
        if any(reason["code"] == "ring_shrunk" for reason in found["reasons"]):
            depth = settings.Setting(found["queue_depth"], account.settings["queue_depth"].source)
            account.settings = {**account.settings, "queue_depth": depth}

    def _confirm(self) -> None:
        """The last word before publishing: a blob that no digest was compared of must not have changed meanwhile."""
        if self.admission is not None:
            trust.require_unchanged(self.artifact, self.admission.facts)


def _throttling(before_s: float | None, after_s: float | None) -> list[dict[str, str]]:
    """A reason where a quota of processor time held this container back while the restore ran."""
    if before_s is None or after_s is None or after_s <= before_s:
        return []
    detail = f"a quota of processor time held this container back for {after_s - before_s:.3f} s of its threads' time"
    return [{"code": "throttled", "detail": detail}]


def prepare(
    artifact: Artifact,
    tensors: Mapping[str, Any],
    streams: Sequence[Any],
    partial: bool,
    account: receipts.Account,
    hydrators: Callable[[str], NativeHydrator],
) -> Restore:
    """Check everything that can be checked before the first byte, and write it down in the account."""
    account.artifact_root = artifact.artifact_root
    tensors = foreign.visible(tensors, writing=True)
    views = views_of(tensors)
    ranges = layout.match(artifact, views, partial)
    device = layout.device_of(views)
    handles = _stream_handles(streams, device)
    backend = account.settings["backend"]
    account.payload_bytes = sum(nbytes for _, _, nbytes in ranges)
    account.place = "host"  # until the restore says otherwise
    account.provider = "python" if backend.value == "python" else "native"
    if device != "host":
        account.gpu = load_native().device_name(device)
    found = None  # the provider python has one way to work
    if account.provider == "native":
        found = profile.find(profile.read(os.environ), artifact.native.blob_fd, device)
    _settle(account, backend, found)
    account.ceilings = found.ceilings if found is not None else None
    admission = _admission(artifact, account)
    return Restore(artifact, dict(tensors), ranges, device, handles, account, hydrators, admission)


def _admission(artifact: Artifact, account: receipts.Account) -> trust.Admission | None:
    """Decide whether this restore compares digests; where it does not, the admission that allows it.

    Raises:
        PolicyRefusedError: COLDSNAP_TRUST_MANIFEST pins other artifacts.
        NotAdmittedError: Digests are to be left out, and no marker vouches for this very file.
        RouteUnavailableError: ``verify="none"`` with the provider python, which has no such way.
    """
    trust.require_pin(artifact, os.environ)
    verify, mode = account.settings["verify"], account.settings["verify_mode"]
    if verify.value != "none" and (mode.value == "inline" or verify.chosen):
        return None
    if account.provider == "python":
        if verify.value == "none":
            raise errors.RouteUnavailableError(
                "hydrate with verify none: the provider python always compares digests",
                stage="open",
                remedy="use backend auto, buffered, direct or gds",
            )
        unused = {"code": "setting_unused", "detail": "provider python always compares digests: verify_mode"}
        account.reasons = [*account.reasons, unused]
        return None
    admission = trust.check(artifact, os.environ)
    if not admission.admitted:  # pinned by a manager, and new on this machine
        verify_artifact(artifact, admit=True)
        admission = trust.check(artifact, os.environ)
    source = verify.source if verify.value == "none" else mode.source
    account.settings = {**account.settings, "verify": settings.Setting("none", source)}
    account.reasons = [*account.reasons, {"code": "preverified", "detail": admission.detail}]
    return admission


def _settle(account: receipts.Account, backend: settings.Setting, found: profile.Entry | None) -> None:
    """Complete the settings for the provider, with the reasons for what was not asked for in these words."""
    chosen = settings.backend_reason(backend, "COLDSNAP_HYDRATION_BACKEND")
    if account.provider == "native":
        tuned = settings.apply_profile(
            account.settings, profile.values(found, "buffered"), profile.values(found, "direct")
        )
        account.settings, reasons = settings.fit_ring(tuned, load_native().limits())
        if found is not None:
            used = sorted(name for name, setting in tuned.items() if setting.source == "profile")
            calibrated = f"calibrated at {found.measured_at}: {', '.join(used) or 'all settings were chosen otherwise'}"
            reasons = [{"code": "profile", "detail": calibrated}, *reasons]
        account.reasons = [chosen, *reasons]
        return
    settings.refuse_device_digests(account.settings["place"].value)
    reasons = [chosen]
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
def opened(artifact: object, account: receipts.Account) -> Iterator[Artifact]:
    """The artifact itself, or the one at a path, open for as long as the restore runs."""
    if isinstance(artifact, Artifact):
        yield artifact
        return
    begin = time.monotonic()
    try:
        opening = open_artifact(artifact)  # type: ignore[arg-type]  # it says what is wrong with another type
    except errors.Error as failure:
        account.reasons = quarantine.note_unopened(artifact, failure, "hydrate")
        raise
    with opening as found:
        account.stages_s = {"open": time.monotonic() - begin}
        yield found


_running_lock = threading.Lock()
_running: list[tuple[str, list[Range]]] = []


def _forget_running() -> None:
    """In a forked child: the threads that restore in its parent are not there, nor is whoever held the lock."""
    global _running_lock
    _running_lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget_running)


@contextlib.contextmanager
def claimed(device: str, ranges: list[Range]) -> Iterator[None]:
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
