"""The restores that are measured: `_native.hydrate` of the calibration blob, each in a proved cache state."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap import _native, errors
from coldsnap._bench import cache, ceilings
from coldsnap._bench.arena import DeviceArena, HostArena, Piece
from coldsnap._bench.ceilings import Ceiling
from coldsnap.settings import default_read_threads

ROUTES = ("buffered", "direct")
DIGESTS = ("crc32", "crc32+sha256")

Tick = Callable[[int, int], bool]


@dataclass(frozen=True)
class Setting:
    """How a restore is run: bytes per chunk, slots in flight, reader threads, and those of them that read the drive."""

    chunk_bytes: int
    queue_depth: int
    threads: int
    direct_threads: int = 0  # 0: as many


class Restorer:
    """The calibration's artifact and its destination, so that a case only says what differs."""

    def __init__(
        self, folder: Path, pieces: list[Piece], arena: HostArena | DeviceArena, device: str, pinned_max_bytes: int
    ) -> None:
        self.blob = folder / "shard-00-00-00" / "weights.safetensors"
        self.device = device
        self.pinned_max_bytes = pinned_max_bytes
        self._artifact = _native.open_artifact(str(folder), None)
        self._hydrator = _native.Hydrator(device)
        self._hash_threads = default_read_threads(_native.limits())
        # The artifact orders extents its own way; the manifest tells which one holds which name.
        extent_of = {name: extent for name, _, _, _, extent, *_ in self._artifact.tensors()}
        self._ranges = [(extent_of[each.name], arena.address + each.offset, each.nbytes) for each in pieces]
        self._arena = arena  # the addresses above live as long as it does

    def run(self, route: str, digest: str, setting: Setting) -> dict[str, Any]:
        """Restore once, verified; give the native report. Raises what `_native.hydrate` raises."""
        settings = {
            "chunk_bytes": setting.chunk_bytes,
            "queue_depth": setting.queue_depth,
            "read_threads": setting.threads,
            "direct_queue_depth": 0,
            "direct_read_threads": setting.direct_threads,
            "hash_threads": self._hash_threads,
            "pinned_max_bytes": self.pinned_max_bytes,
        }
        report: dict[str, Any] = self._hydrator.hydrate(
            self._artifact, self._ranges, route, digest, settings, [], _keep_going
        )
        return report


@dataclass
class Case:
    """One row of the table: a route in a cache state with a digest and a setting.

    `samples_s` are the seconds from the choice of the route to the hand-over, without `ring_s`, the time that making
    the staging ring took: an engine adapter does that while the model is being built. `residency_before` has, for each
    sample, the fraction of the blob that was in the page cache when it began; `limits` the stage that took longest.
    """

    restorer: Restorer
    route: str
    wanted_cache: str
    digest: str
    setting: Setting
    samples_s: list[float] = field(default_factory=list)
    ring_s: list[float] = field(default_factory=list)
    residency_before: list[float] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    refused: str = ""

    @property
    def label(self) -> str:
        """What the progress line says."""
        return f"restore {self.route}, {self.wanted_cache}, {self.digest}"

    @property
    def cache(self) -> str:
        """``cold`` or ``warm`` if residency proved it before every sample, else ``mixed``."""
        proves = cache.is_cold if self.wanted_cache == "cold" else cache.is_warm
        return self.wanted_cache if all(map(proves, self.residency_before)) else "mixed"

    @property
    def median_s(self) -> float:
        """The median sample in seconds."""
        return statistics.median(self.samples_s)

    @property
    def limiting_stage(self) -> str:
        """The stage that limited most of the samples."""
        return statistics.mode(self.limits)

    def sample(self) -> None:
        """Bring the blob into the wanted cache state and restore once, or note why this route does not work here."""
        if self.refused:
            return
        blob = self.restorer.blob
        before = cache.make_cold(blob) if self.wanted_cache == "cold" else cache.make_warm(blob)
        try:
            report = self.restorer.run(self.route, self.digest, self.setting)
        except errors.RouteUnavailableError as error:
            self.refused = str(error)
            return
        self.ring_s.append(report["stages_s"]["ring"])
        self.samples_s.append(report["wall_s"] - report["stages_s"]["ring"])
        self.residency_before.append(before)
        copying = self.setting.threads if self.restorer.device == "host" else 1
        self.limits.append(limiting_stage(report, copying))


def cases_in(restorer: Restorer, cache_state: str, setting: Setting) -> list[Case]:
    """List the standard cases of one cache state: each route with each digest."""
    return [Case(restorer, route, cache_state, digest, setting) for route in ROUTES for digest in DIGESTS]


def sweep_cases(restorer: Restorer, ladder: list[int], chunks: list[int]) -> list[Case]:
    """List the grid: chunk x depth x threads with the default digests, where each route is at home.

    That is ``direct`` cold and ``buffered`` warm. Depths are 1, 2 and 4 slots per thread, at most 64; a ring above the
    pinned cap is left out.
    """
    found = []
    for chunk in chunks:
        for count in ladder:
            for depth in sorted({min(64, count * factor) for factor in (1, 2, 4)}):
                if chunk * depth <= restorer.pinned_max_bytes:
                    setting = Setting(chunk, depth, count)
                    found.append(Case(restorer, "direct", "cold", DIGESTS[1], setting))
                    found.append(Case(restorer, "buffered", "warm", DIGESTS[1], setting))
    return found


def bound_of(case: Case, found: list[Ceiling]) -> Ceiling | None:
    """Find the ceiling that bounds a case.

    A direct read passes the page cache by, so whatever is resident the drive bounds it, as it bounds every cold case.
    A warm buffered case is bound by the link to the device, or on the host by reading the page cache. Where no state
    could be proved (files in memory), the page cache is the only bound there is.
    """
    drive = ceilings.best(found, ceilings.RAW_DIRECT_READ, ceilings.RAW_BUFFERED_READ)
    memory = ceilings.best(found, ceilings.PINNED_H2D) or ceilings.best(found, ceilings.PAGE_CACHE_READ)
    if case.route == "direct" or case.cache == "cold":
        return drive or memory
    return memory


def limiting_stage(report: dict[str, Any], copying: int) -> str:
    """Name the stage of a native report that took the most time, the making of the ring aside.

    Stages overlap. ``read`` and ``digest`` are means over the reader threads; ``copy`` is a sum over all slots, which on
    the host the same threads do: there it counts per each of the ``copying`` threads.
    """
    stages_s: dict[str, float] = {name: each for name, each in report["stages_s"].items() if name != "ring"}
    stages_s["copy"] /= copying
    return max(stages_s, key=lambda stage: stages_s[stage])


def _keep_going(done: int, total: int) -> bool:
    """Let Python look for signals while a restore runs; a handler's exception cancels it."""
    return False
