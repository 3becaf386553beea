"""One shard of a capture, whoever publishes it: settings completed, written by a provider, accounted for, admitted."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Any

from coldsnap import errors, python_capture, receipts, settings, state, trust
from coldsnap.artifact import load_native, open_artifact
from coldsnap.python_provider import Tick
from coldsnap.sources import Sources
from coldsnap.store import Published, collected
from coldsnap.values import canonical
from coldsnap.version import VERSION

_RING = ("chunk_bytes", "queue_depth", "write_threads")
_PYTHON_RING = {"chunk_bytes": 4 * settings.MIB, "queue_depth": 1, "read_threads": 1}  # one chunk after the other


@dataclasses.dataclass
class ShardCapture:
    """A shard under way: of what, under which name, and its account.

    Attributes:
        shard: ``shard-<pp>-<tp>-<ep>``.
        sources: The tensors.
        identity: Canonical JSON, as is ``scalars``.
        tick: Told how far it is; True cancels.
        account: Gets all that a receipt says; its settings are those of `coldsnap.settings.resolve_capture`.
        resume: Whether the native core takes up what a killed capture left in the folder.
    """

    shard: str
    sources: Sources
    identity: str
    scalars: str
    tick: Tick
    account: receipts.Account
    resume: bool = False

    @property
    def preverified(self) -> bool:
        return bool(self._value("verify_mode") == "preverified")

    def prepare(self) -> None:
        """Complete the settings, and refuse what the trust marker would fail on before gigabytes are written.

        Raises:
            RequestInvalidError: The ring does not fit.
            RouteUnavailableError: Digests are to be computed on the device, and the provider can't.
            PolicyRefusedError, IoError: The trust folder can't be trusted or made.
        """
        self._settle()
        if self.preverified:
            with state.opened(state.TRUST, os.environ, make=True):
                pass

    def blob_bytes(self) -> int:
        """Bytes of the blob that `write` would write.

        Raises:
            RequestInvalidError: The tensors are nothing that the format can hold.
        """
        nbytes: int = load_native().plan_layout(self.sources.rows).blob_bytes
        return nbytes

    def write(self, folder: str) -> str:
        """Write the shard, durably, into a folder that is not published yet; its record.

        Raises:
            As `coldsnap.python_capture.capture_shard`.
        """
        write = self._write_python if self.account.provider == "python" else self._write_native
        found = write(folder)
        self._note(found)
        # Copied, source checked, read again; the device digests the source before the copy too.
        passes = 2 + self.preverified + (self.account.place in ("device", "both"))
        total = self.account.payload_bytes * passes
        if self.tick(total, total):
            raise errors.Cancelled(f"capture {self.account.payload_bytes} bytes: cancelled before it was published")
        record: str = found["record"]
        return record

    def digest(self) -> str:
        """The record of the shard as it would be written; nothing is.

        Raises:
            As `coldsnap.python_capture.digest_shard`.
        """
        self.account.provider = "python"
        stages_s: dict[str, float] = {}
        self.account.stages_s = stages_s
        found = python_capture.digest_shard(
            self.shard,
            self.sources,
            self.identity,
            self.scalars,
            chunk_bytes=self._value("chunk_bytes"),
            streams=self._streams(),
            tick=self.tick,
            stages_s=stages_s,
        )
        self._note(found)
        record: str = found["record"]
        return record

    def finish(self, published: Published, publish_s: float) -> None:
        """Complete the account once the artifact is there, and write the trust marker of a preverified shard."""
        account = self.account
        account.artifact_root = published.artifact_root
        account.stages_s = {**account.stages_s, "publish": account.stages_s.get("publish", 0.0) + publish_s}
        if published.already_present:
            detail = f"the store has {published.artifact_root} already, and every digest of it was compared"
            account.reasons = [*account.reasons, {"code": "already_present", "detail": detail}]
        account.reasons = [*account.reasons, *collected(published.removed)]
        if self.preverified:
            account.reasons = [*account.reasons, self._admitted(published.path)]

    def about(self) -> str:
        """The account of the capture for artifact.json, canonical; no digest covers it."""
        backend = self._value("backend")
        about = {"backend": backend, "host": os.uname().nodename, "time_ns": str(time.time_ns()), "version": VERSION}
        return canonical(about, "the account of the capture")

    def _value(self, name: str) -> Any:
        return self.account.settings[name].value

    def _settle(self) -> None:
        """Complete the settings for the provider, with the reasons for what was not asked for in these words."""
        account, native = self.account, load_native()
        backend = account.settings["backend"]
        account.reasons = [settings.backend_reason(backend, "COLDSNAP_CAPTURE_BACKEND")]
        account.provider = "python" if backend.value == "python" else "native"
        account.place = "host"
        if self.sources.device != "host":
            account.gpu = native.device_name(self.sources.device)
        full = dict(account.settings)
        if account.provider == "native":
            full, reasons = settings.fit_ring(full, native.limits())
            account.reasons = [*account.reasons, *reasons]
        else:
            settings.refuse_device_digests(account.settings["place"].value)
            full |= {name: settings.Setting(value, "default") for name, value in _PYTHON_RING.items()}
        full["write_threads"] = full.pop("read_threads")
        account.settings = full | {"verify": settings.Setting("crc32+sha256", "default")}

    def _note(self, found: dict[str, Any]) -> None:
        """Take into the account what a provider did."""
        account = self.account
        account.routes = found["routes"]
        account.stages_s = found["stages_s"]
        if account.provider == "native":
            used = {name: settings.Setting(found[name], account.settings[name].source) for name in _RING}
            account.settings = {**account.settings, **used}  # the ring may have shrunk
        account.payload_bytes = found["payload_bytes"]
        account.residency = {"before": None, "after": found["residency_after"]}
        reasons = [*account.reasons, *found["reasons"]]
        if found["uncovered_bytes"]:
            detail = (
                f"{found['uncovered_bytes']} bytes of storages are outside every tensor, and belong to their extents"
            )
            reasons.append({"code": "uncovered_bytes", "detail": detail})
        account.reasons = reasons

    def _write_python(self, folder: str) -> dict[str, Any]:
        stages_s: dict[str, float] = {}
        self.account.stages_s = stages_s
        return python_capture.capture_shard(
            folder,
            self.shard,
            self.sources,
            self.identity,
            self.scalars,
            chunk_bytes=self._value("chunk_bytes"),
            preverified=self.preverified,
            check_source=True,
            streams=self._streams(),
            tick=self.tick,
            stages_s=stages_s,
        )

    def _write_native(self, folder: str) -> dict[str, Any]:
        found: dict[str, Any] = load_native().capture_shard(
            folder,
            self.shard,
            self.sources.rows,
            self.identity,
            self.scalars,
            self.sources.device,
            backend=self._value("backend"),
            chunk_bytes=self._value("chunk_bytes"),
            queue_depth=self._value("queue_depth"),
            write_threads=self._value("write_threads"),
            pinned_max_bytes=self._value("pinned_max_bytes"),
            preverified=self.preverified,
            check_source=True,
            streams=self._streams(),
            progress=self.tick,
            resume=self.resume,
            place=self._value("place"),
        )
        self.account.place = found["place"]
        return found

    def _streams(self) -> list[int]:
        """What was submitted to the current torch stream comes before the first copy."""
        if self.sources.device == "host":
            return []
        return [sys.modules["torch"].cuda.current_stream(self.sources.device).cuda_stream]

    def _admitted(self, path: Path) -> dict[str, str]:
        """Write the trust marker. The artifact is published, so that this fails is no failure of the capture."""
        try:
            # The bytes were compared in a folder that only this user could write to: this file is the one that passed.
            with open_artifact(path, shard=self.shard) as artifact:
                trust.write_marker(artifact, trust.facts_of(artifact), os.environ)
                return {"code": "admitted", "detail": f"{artifact.shard} {artifact.native.manifest_sha256}"}
        except errors.Error as cause:
            return {"code": "not_admitted", "detail": f"{cause.message}; verify it with admit"}
