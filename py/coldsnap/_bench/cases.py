"""The restores that are measured: of the calibration blob by `_native.Hydrator`, each in a proved cache state."""

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
from coldsnap._bench.sizes import MIB
from coldsnap.settings import default_read_threads

ROUTES = ("buffered", "direct")
DIGESTS = ("none", "crc32", "crc32+sha256")
ALL_DIGESTS = DIGESTS[-1]
_TUNING_BYTES = 512 * MIB

Tick = Callable[[int, int], bool]


@dataclass(frozen=True)
class Setting:
    """How a restore is run: bytes per chunk, slots in flight, reader threads, and the same where the drive decides."""

    chunk_bytes: int
    queue_depth: int
    threads: int
    direct_chunk_bytes: int = 0  # 0: the same, as of the others
    direct_queue_depth: int = 0
    direct_threads: int = 0


class Restorer:
    """The calibration's artifact and its destination, so that a case only says what differs."""

    def __init__(
        self, folder: Path, pieces: list[Piece], arena: HostArena | DeviceArena, device: str, pinned_max_bytes: int
    ) -> None:
        self.blob = folder / "shard-00-00-00" / "weights.safetensors"
        self.device = device
        self.pinned_max_bytes = pinned_max_bytes
        self._artifact = _native.open_artifact(str(folder), None)
        self._hydrators: dict[int, Any] = {}  # by chunk: each keeps the ring of its own
        self._hash_threads = default_read_threads(_native.limits())
        # The artifact orders extents its own way; the manifest tells which one holds which name.
        extent_of = {name: extent for name, _, _, _, extent, *_ in self._artifact.tensors()}
        self._ranges = [(extent_of[each.name], arena.address + each.offset, each.nbytes) for each in pieces]
        self.payload_bytes = sum(each.nbytes for each in pieces)
        self._arena = arena  # the addresses above live as long as it does

    def run(
        self,
        route: str,
        digest: str,
        setting: Setting,
        place: str = "auto",
        at_most: int | None = None,
        trace: _native.Trace | None = None,
    ) -> dict[str, Any]:
        """Restore once; give the native report. Raises what `_native.Hydrator.hydrate` raises.

        Args:
            route: As a backend is called.
            digest: As verify is called; ``none`` trusts the blob that this process has just written.
            setting: How.
            place: Where digests are computed.
            at_most: About how many bytes to restore, the smallest extents first; all of them when None.
            trace: Gets what every thread did.
        """
        if setting.chunk_bytes not in self._hydrators:
            self._hydrators[setting.chunk_bytes] = _native.Hydrator(self.device)
        report: dict[str, Any] = self._hydrators[setting.chunk_bytes].hydrate(
            self._artifact,
            self._some(at_most),
            route,
            digest,
            self._settings(setting),
            [],
            _keep_going,
            trace=trace,
            place=place,
        )
        return report

    def make_ring(self, setting: Setting) -> float:
        """Make ring, threads and streams anew, give them back, and tell the seconds that making took."""
        seconds: float = _native.Hydrator(self.device).prepare("auto", self._settings(setting))
        return seconds

    def _settings(self, setting: Setting) -> dict[str, int]:
        return {
            "chunk_bytes": setting.chunk_bytes,
            "queue_depth": setting.queue_depth,
            "read_threads": setting.threads,
            "direct_chunk_bytes": min(setting.direct_chunk_bytes, setting.chunk_bytes),
            "direct_queue_depth": min(setting.direct_queue_depth, setting.queue_depth),
            "direct_read_threads": setting.direct_threads,
            "hash_threads": self._hash_threads,
            "pinned_max_bytes": self.pinned_max_bytes,
        }

    def _some(self, at_most: int | None) -> list[tuple[int, int, int]]:
        if at_most is None:
            return self._ranges
        chosen: list[tuple[int, int, int]] = []
        for row in sorted(self._ranges, key=lambda row: row[2]):
            if chosen and sum(nbytes for *_, nbytes in chosen) + row[2] > at_most:
                break
            chosen.append(row)
        return chosen


@dataclass
class Case:
    """One row of the table: a route in a cache state with a digest and a setting.

    `samples_s` are the seconds from the choice of the route to the hand-over, without the time that making the staging
    ring took: an engine adapter does that while the model is being built. `residency_before` has, for each
    sample, the fraction of the blob that was in the page cache when it began; `limits` the stage that took longest;
    `found_place` says where digests were computed, in a case that leaves the choice.
    """

    restorer: Restorer
    route: str
    wanted_cache: str
    digest: str
    setting: Setting
    place: str = "auto"
    found_place: str = "host"
    samples_s: list[float] = field(default_factory=list)
    residency_before: list[float] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    refused: str = ""

    @property
    def label(self) -> str:
        """What the progress line says."""
        return f"restore {self.route}, {self.wanted_cache}, {self.digest}"

    @property
    def cache(self) -> str:
        """``cold``, ``warm`` or ``half`` if residency proved it before every sample, else ``mixed``."""
        proves = _STATES[self.wanted_cache][1]
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
        before = _STATES[self.wanted_cache][0](blob)
        try:
            report = self.restorer.run(self.route, self.digest, self.setting, self.place)
        except errors.RouteUnavailableError as error:
            self.refused = str(error)
            return
        self.found_place = report["place"]
        self.samples_s.append(report["wall_s"] - report["stages_s"]["ring"])
        self.residency_before.append(before)
        copying = self.setting.threads if self.restorer.device == "host" else 1
        self.limits.append(limiting_stage(report, copying))


# How a file is brought into a state, and what proves it.
_STATES: dict[str, tuple[Callable[[Path], float], Callable[[float], bool]]] = {
    "cold": (cache.make_cold, cache.is_cold),
    "warm": (cache.make_warm, cache.is_warm),
    "half": (cache.make_half, cache.is_half),
}


def cold_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List the cases from the drive: direct with each digest, and what the page cache makes of it."""
    return [
        Case(restorer, "buffered", "cold", ALL_DIGESTS, setting),
        *(Case(restorer, "direct", "cold", digest, direct) for digest in DIGESTS),
        *on_host(restorer, Case(restorer, "direct", "cold", ALL_DIGESTS, direct)),
    ]


def on_host(restorer: Restorer, *cases: Case) -> list[Case]:
    """The cases with digests from the staged bytes, where the device would compute them otherwise."""
    if restorer.device == "host":
        return []
    return [Case(restorer, each.route, each.wanted_cache, each.digest, each.setting, "host") for each in cases]


def warm_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List the cases from the page cache, and direct reads, which pass it by.

    Where hashing takes no core's time, cores beyond what the copies need are in each other's way: so the small digests
    are measured with three quarters of the threads too.
    """
    fewer = Setting(setting.chunk_bytes, setting.queue_depth, max(1, setting.threads * 3 // 4))
    less = [] if fewer == setting else [fewer]
    found = [Case(restorer, "buffered", "warm", digest, each) for digest in DIGESTS[:2] for each in (setting, *less)]
    verified = Case(restorer, "buffered", "warm", ALL_DIGESTS, setting)
    found.append(verified)
    if restorer.device != "host":
        found += [Case(restorer, "buffered", "warm", ALL_DIGESTS, each) for each in less]
    found += on_host(restorer, Case(restorer, "buffered", "warm", DIGESTS[1], setting), verified)
    return [*found, Case(restorer, "direct", "warm", ALL_DIGESTS, direct)]


def half_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List what can be done with a blob of which every other piece is in the page cache."""
    ring = (setting.chunk_bytes, setting.queue_depth, setting.threads)
    both = Setting(*ring, direct.chunk_bytes, direct.queue_depth, direct.threads)
    settings = {"auto": both, "buffered": setting, "direct": direct}
    return [Case(restorer, route, "half", DIGESTS[1], each) for route, each in settings.items()]


def tuned_direct(restorer: Restorer, setting: Setting, ladder: list[int]) -> Setting:
    """Find chunk and threads for reads from the drive: the fastest of a few, twice each, over at most 512 MiB.

    Small chunks and few slots stay in the processor's cache, where drives of virtual machines are fastest; some drives
    want many reads at once.
    """
    few = [count for count in ladder if count in (1, 2, 4)]
    shapes = [(setting.chunk_bytes, setting.queue_depth, setting.threads)]
    shapes += [(setting.chunk_bytes, min(max(4, 2 * count), setting.queue_depth), count) for count in few]
    shapes += [(chunk, max(4, 2 * count), count) for chunk in (MIB // 2, MIB) for count in few]
    settings = [Setting(*shape) for shape in dict.fromkeys(shapes)]

    def seconds(each: Setting) -> float:
        cache.make_cold(restorer.blob)
        report = restorer.run("direct", ALL_DIGESTS, each, at_most=_TUNING_BYTES)
        return float(report["wall_s"] - report["stages_s"]["ring"])

    rounds = [[seconds(each) for each in settings] for _ in range(2)]
    best = min(range(len(settings)), key=lambda index: min(samples[index] for samples in rounds))
    return settings[best]


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
                    found.append(Case(restorer, "direct", "cold", ALL_DIGESTS, setting))
                    found.append(Case(restorer, "buffered", "warm", ALL_DIGESTS, setting))
    return found


def bound_of(case: Case, found: list[Ceiling]) -> Ceiling | None:
    """Find the ceiling that bounds a case.

    A direct read passes the page cache by, so whatever is resident the drive bounds it, as it bounds every cold case.
    A warm buffered case is bound by the link to the device, or on the host by reading the page cache. Where no state
    could be proved (files in memory), the page cache is the only bound there is. A half-cached blob has none.
    """
    if case.cache == "half":
        return None
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
