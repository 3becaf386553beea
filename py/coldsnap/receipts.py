"""The JSON account of one operation, successful or not. Keys and their meaning are fixed: docs/architecture.md, 9a.

A receipt names no host and holds no path of the machine; an error's message may name the file that failed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coldsnap import errors
from coldsnap.settings import Setting
from coldsnap.version import VERSION

FORMAT = 1
STAGES = ("open", "ring", "read", "digest", "copy", "drain", "publish")
CAPTURE_STAGES = ("open", "ring", "copy", "digest", "write", "source", "sync", "reread", "publish")
_MOSTLY = 0.5  # of the blob in the page cache: a restore through it is not bound by the drive
# The stages that run for as long as bytes move.
_LIMITING = ("read", "digest", "copy")
_CAPTURE_LIMITING = ("copy", "digest", "write", "sync")


@dataclass(frozen=True)
class Receipt:
    """What one operation did.

    Attributes:
        format: Version of this shape, 1.
        ok: Whether it succeeded; otherwise ``error`` says why not.
        operation: ``hydrate``, ``capture``, ...
        artifact_root: SHA-256 in hex that names the artifact; None when it failed before that was known.
        provider: Who moved the bytes: ``native``, ``python`` or ``recovery``; None when nobody began.
        routes: ``{route, bytes, extents}`` per path that bytes took.
        reasons: ``{code, detail}`` per decision; codes are stable.
        settings: ``{value, source}`` by name: what was in force, and who chose it.
        stages_s: Seconds by stage; stages overlap, so they need not add up to ``wall_s``.
        wall_s: Seconds on the monotonic clock, from the call to the verdict.
        payload_bytes: Bytes of the extents that were asked for.
        bytes_per_second: ``payload_bytes / wall_s``; None when nothing was moved.
        ceiling_ratio: Share of the measured ceiling of this machine; None without a profile.
        limiting_stage: The longest of read, digest and copy, of a capture that of copy, digest, write and sync; None
            when nothing was moved.
        residency: Share of the blob in the page cache, ``before`` and ``after``, 0 to 1; None where not known.
        gds_path: The path that GPUDirect Storage really took; None when it was not used.
        verify: ``mode`` and ``place`` of the digests compared.
        versions: Of coldsnap, Python and what was loaded beside it; ``native_library`` has the file's name and its
            SHA-256 where another library than the extension module did the work.
        machine: ``cpu``, ``cores`` (usable), ``memory_bytes``, ``kernel``, ``gpu`` (None when none was used).
        error: None, or ``{code, message, stage, remedy}``.
    """

    format: int
    ok: bool
    operation: str
    artifact_root: str | None
    provider: str | None
    routes: list[dict[str, Any]]
    reasons: list[dict[str, str]]
    settings: dict[str, dict[str, Any]]
    stages_s: dict[str, float]
    wall_s: float
    payload_bytes: int
    bytes_per_second: float | None
    ceiling_ratio: float | None
    limiting_stage: str | None
    residency: dict[str, float | None]
    gds_path: str | None
    verify: dict[str, str | None]
    versions: dict[str, str]
    machine: dict[str, Any]
    error: dict[str, str] | None

    def as_dict(self) -> dict[str, Any]:
        """The receipt as a plain dictionary of its own, keys in the order of the contract."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The receipt as one line of JSON, without the line's end."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Ceilings(Protocol):
    """What this machine can do, in bytes per second, as `coldsnap.profile.Ceilings` has it from a calibration."""

    @property
    def h2d(self) -> float | None: ...
    @property
    def direct_read(self) -> float | None: ...
    @property
    def page_cache(self) -> float | None: ...


@dataclass
class Account:
    """What an operation has found out so far; `receipt` turns it into a `Receipt` at its end, however it ends."""

    operation: str
    artifact_root: str | None = None
    provider: str | None = None
    routes: Sequence[Mapping[str, Any]] = ()
    reasons: Sequence[Mapping[str, str]] = ()
    settings: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    stages_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    wall_s: float = 0.0
    payload_bytes: int = 0
    residency: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    place: str | None = None
    gpu: str | None = None
    library: str | None = None
    gds_path: str | None = None
    ceilings: Ceilings | None = None

    def receipt(self, failure: BaseException | None = None) -> Receipt:
        """The receipt of this account; of a failed operation when there is a ``failure``."""
        moved = failure is None and self.payload_bytes > 0 and self.wall_s > 0
        mode = self.settings["verify"].value if "verify" in self.settings else None
        captured = self.operation == "capture"
        stages, limiting = (CAPTURE_STAGES, _CAPTURE_LIMITING) if captured else (STAGES, _LIMITING)
        return Receipt(
            format=FORMAT,
            ok=failure is None,
            operation=self.operation,
            artifact_root=self.artifact_root,
            provider=self.provider,
            routes=[dict(route) for route in self.routes],
            reasons=unique_reasons(self.reasons),
            settings={name: {"value": s.value, "source": s.source} for name, s in sorted(self.settings.items())},
            stages_s={stage: float(self.stages_s.get(stage, 0.0)) for stage in stages},
            wall_s=self.wall_s,
            payload_bytes=self.payload_bytes,
            bytes_per_second=self.payload_bytes / self.wall_s if moved else None,
            ceiling_ratio=self._ceiling_ratio() if moved else None,
            limiting_stage=max(limiting, key=lambda stage: self.stages_s.get(stage, 0.0)) if moved else None,
            residency={when: self.residency.get(when) for when in ("before", "after")},
            gds_path=self.gds_path,
            verify={"mode": mode, "place": self.place},
            versions=versions() | ({"native_library": self.library} if self.library else {}),
            machine=machine(self.gpu),
            error=None if failure is None else error_entry(failure),
        )

    def _ceiling_ratio(self) -> float | None:
        """The time that the measured ceilings allow, of the time that it took; routes work side by side."""
        if self.ceilings is None:
            return None
        link = self.ceilings.page_cache if self.gpu is None else self.ceilings.h2d
        cold = self.residency.get("before") is not None and (self.residency["before"] or 0.0) < _MOSTLY
        by_route = {"buffered": self.ceilings.direct_read if cold else link}
        least_s = 0.0
        for route in self.routes:
            rate = by_route.get(route["route"], self.ceilings.direct_read)
            if route["route"] == "python" or rate is None:
                return None
            least_s = max(least_s, route["bytes"] / rate)
        return least_s / self.wall_s


def unique_reasons(reasons: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """The reasons as plain dictionaries in order, each code and detail once."""
    return [dict(entry) for entry in {(r["code"], r["detail"]): r for r in reasons}.values()]


def error_entry(failure: BaseException) -> dict[str, str]:
    """What a receipt's ``error`` says of an exception, also of one that is not ours."""
    if isinstance(failure, errors.Error):
        parts = failure.code, failure.message, failure.stage, failure.remedy
    elif isinstance(failure, KeyboardInterrupt):
        parts = "cancelled", "interrupted from the keyboard or by a signal", "", ""
    else:
        text = str(failure)
        parts = "internal", f"{type(failure).__name__}: {text}" if text else type(failure).__name__, "", ""
    return dict(zip(("code", "message", "stage", "remedy"), parts, strict=True))


def versions() -> dict[str, str]:
    """Versions of coldsnap, Python, and of numpy, torch, the NVIDIA driver and our CUDA runtime, where present."""
    found = {"coldsnap": VERSION, "python": platform.python_version()}
    for name in ("numpy", "torch"):
        module = sys.modules.get(name)
        if module is not None:
            found[name] = str(getattr(module, "__version__", "unknown"))
    driver = _driver_version()
    if driver:
        found["cuda_driver"] = driver
        native = sys.modules.get("coldsnap._native")
        if native is not None:
            found["cuda_runtime"] = native.CUDA_RUNTIME_VERSION
    return found


def machine(gpu: str | None = None) -> dict[str, Any]:
    """What this process runs on: no host name, no path."""
    return {**_machine(), "cores": len(os.sched_getaffinity(0)), "gpu": gpu}


@functools.cache
def _machine() -> dict[str, Any]:
    return {
        "cpu": _field_of("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": 0,  # keeps its place; the affinity may change while the process lives
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": os.uname().release,
    }


@functools.cache
def _driver_version() -> str | None:
    # The kernel module says it without any CUDA library: "NVRM version: NVIDIA UNIX ... Kernel Module  580.95.05  ...".
    line = _field_of("/proc/driver/nvidia/version", "NVRM version") or ""
    return next((word for word in line.split() if word[:1].isdigit() and "." in word), None)


def _field_of(path: str, name: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, colon, value = line.partition(":")
                if colon and key.strip() == name:
                    return value.strip()
    except OSError:
        pass  # another kernel or a locked-down container: the receipt then says less
    return None
