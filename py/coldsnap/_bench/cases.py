"""What is measured: restores of the calibration's blob and captures of its memory, each in a proved cache state."""

from __future__ import annotations

import abc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from coldsnap import _native, errors
from coldsnap._bench import cache, ceilings
from coldsnap._bench.arena import DeviceArena, HostArena, Piece
from coldsnap._bench.ceilings import Ceiling
from coldsnap._bench.sizes import MIB
from coldsnap.settings import DIRECT_DEFAULTS, default_read_threads

ROUTES = ("buffered", "direct")
DIGESTS = ("none", "crc32", "crc32+sha256")
ALL_DIGESTS = DIGESTS[-1]
SHARD = "shard-00-00-00"  # what the writer of whole artifacts calls its only shard
SHAPE = ("chunk_bytes", "queue_depth", "threads")  # the keys of a setting in results.json
TRIAL_BYTES = 512 * MIB  # enough to tell settings apart

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


class Subject(Protocol):
    """What a case is about: so many bytes in so many extents, in memory of a device."""

    device: str
    payload_bytes: int
    extents: int


class Restorer:
    """The calibration's artifact and its destination, so that a case only says what differs."""

    def __init__(
        self, folder: Path, pieces: list[Piece], arena: HostArena | DeviceArena, device: str, pinned_max_bytes: int
    ) -> None:
        self.blob = folder / SHARD / "weights.safetensors"
        self.device = device
        self.pinned_max_bytes = pinned_max_bytes
        self._artifact = _native.open_artifact(str(folder), None)
        self._hydrators: dict[int, Any] = {}  # by chunk: each keeps the ring of its own
        self._ring_bytes: dict[int, int] = {}
        self._hash_threads = default_read_threads(_native.limits())
        # The artifact orders extents its own way; the manifest tells which one holds which name.
        extent_of = {name: extent for name, _, _, _, extent, *_ in self._artifact.tensors()}
        self._ranges = [(extent_of[each.name], arena.address + each.offset, each.nbytes) for each in pieces]
        self.payload_bytes = sum(each.nbytes for each in pieces)
        self.extents = len(pieces)
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
            at_most: Of how many bytes on it is enough, the smallest extents first; all of them when None.
            trace: Gets what every thread did.
        """
        report: dict[str, Any] = self._hydrator(setting).hydrate(
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

    def payload_of(self, at_most: int | None) -> int:
        """How many bytes `run` restores."""
        return self.payload_bytes if at_most is None else sum(nbytes for *_, nbytes in self._some(at_most))

    def _hydrator(self, setting: Setting) -> Any:
        """The hydrator for a chunk; those of other chunks go once all rings together would be over the cap."""
        chunk = setting.chunk_bytes
        hydrator = self._hydrators.pop(chunk, None) or _native.Hydrator(self.device)
        self._ring_bytes[chunk] = max(chunk * setting.queue_depth, self._ring_bytes.get(chunk, 0))
        while self._hydrators and sum(self._ring_bytes.values()) > self.pinned_max_bytes:
            oldest = next(iter(self._hydrators))
            del self._hydrators[oldest], self._ring_bytes[oldest]
        self._hydrators[chunk] = hydrator  # the last one used is the last to go
        return hydrator

    def make_ring(self, setting: Setting) -> float:
        """Make ring, threads and streams anew, give them back, and tell the seconds that making took."""
        seconds: float = _native.Hydrator(self.device).prepare("auto", self._settings(setting))
        return seconds

    def _settings(self, setting: Setting) -> dict[str, int]:
        return {
            "chunk_bytes": setting.chunk_bytes,
            "queue_depth": setting.queue_depth,
            "read_threads": setting.threads,
            "direct_chunk_bytes": setting.direct_chunk_bytes,
            "direct_queue_depth": setting.direct_queue_depth,
            "direct_read_threads": setting.direct_threads,
            "hash_threads": self._hash_threads,
            "pinned_max_bytes": self.pinned_max_bytes,
        }

    def _some(self, at_most: int | None) -> list[tuple[int, int, int]]:
        if at_most is None or at_most >= self.payload_bytes:
            return self._ranges
        chosen: list[tuple[int, int, int]] = []
        total = 0
        for row in sorted(self._ranges, key=lambda row: row[2]):
            if total >= at_most:
                break
            chosen.append(row)
            total += row[2]
        return chosen


@dataclass
class Measured(abc.ABC):
    """One row of the table: an operation by a route in a cache state with a digest and a setting.

    `residency_before` has, for each sample, the fraction of the blob that was in the page cache when it began; `limits`
    the stage that took longest; `found_place` says where digests were computed, in a case that leaves the choice.
    `at_most` makes it a trial over part of the blob. `processors` names the ceiling that tells how much the processors gave
    in the same rounds.
    """

    operation: ClassVar[str]

    subject: Subject
    route: str
    wanted_cache: str
    digest: str
    setting: Setting
    place: str = "auto"
    found_place: str = "host"
    at_most: int | None = None
    samples_s: list[float] = field(default_factory=list)
    residency_before: list[float] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    refused: str = ""
    processors: str | None = None

    @property
    def label(self) -> str:
        """What the progress line says."""
        doing = "restore" if self.operation == "hydrate" else self.operation
        return f"{doing} {self.route}, {self.wanted_cache}, {self.digest}"

    @property
    def key(self) -> str:
        """What tells it apart from the others, whatever is found out about it."""
        return key_of(self.asked)

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked for, under the keys of results.json."""
        setting = self.setting
        drive = (setting.direct_chunk_bytes, setting.direct_queue_depth, setting.direct_threads)
        return {
            "operation": self.operation,
            "route": self.route,
            "cache": self.wanted_cache,
            "digest": self.digest,
            "place": self.place,
            **dict(zip(SHAPE, (setting.chunk_bytes, setting.queue_depth, setting.threads), strict=True)),
            "payload_bytes": self.nbytes,
            "extents": self.subject.extents,
            "direct": dict(zip(SHAPE, drive, strict=True)) if setting.direct_threads else None,
        }

    @property
    def kin(self) -> str:
        """What it costs about as much time as, byte for byte."""
        return f"{self.operation} {self.route} {self.wanted_cache} {self.digest} {self.place}"

    @property
    def taken(self) -> int:
        """How many samples it has; those of an interrupted calibration count."""
        return len(self.samples_s)

    @property
    def nbytes(self) -> int:
        """Payload bytes of one sample."""
        return self.subject.payload_bytes

    @property
    def cache(self) -> str:
        """``cold``, ``warm``, ``half`` or ``new`` if residency proved it before every sample, else ``mixed``."""
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
        """Take one sample, or note why this does not work here."""
        if self.refused:
            return
        try:
            self._sample()
        except errors.RouteUnavailableError as error:
            self.refused = str(error)

    @abc.abstractmethod
    def _sample(self) -> None:
        """Take one sample; a route that does not work here raises RouteUnavailableError."""


def name_of(entry: Mapping[str, Any], payload_bytes: int) -> str:
    """Name an entry of results.json as comparisons and people call it; `payload_bytes` is the document's own.

    ``hydrate direct cold crc32+sha256 host 1048576x8x4``: operation, route, cache, digest, place, and chunk x depth x
    threads. What moves another payload than the main blob has its extents named too.
    """
    words = [entry[key] for key in ("operation", "route", "cache", "digest", "place")]
    words.append(_shape(entry))
    if entry.get("direct"):
        words.append(f"drive {_shape(entry['direct'])}")
    if entry.get("payload_bytes", payload_bytes) != payload_bytes:
        words.append(f"{entry['extents']} extents")
    return " ".join(words)


def key_of(entry: Mapping[str, Any]) -> str:
    """What tells an entry from all others, by what was asked for."""
    nbytes = entry["payload_bytes"]
    return f"{name_of({**entry, **entry.get('asked', {})}, nbytes)}, {nbytes} bytes in {entry['extents']} extents"


def _shape(entry: Mapping[str, Any]) -> str:
    return "x".join(str(entry[key]) for key in SHAPE)


@dataclass
class Case(Measured):
    """A restore.

    `samples_s` are the seconds from the choice of the route to the hand-over, without the time that making the staging
    ring took: an engine adapter does that while the model is being built.
    """

    operation = "hydrate"
    subject: Restorer

    @property
    def nbytes(self) -> int:
        """Payload bytes of one sample."""
        return self.subject.payload_of(self.at_most)

    def _sample(self) -> None:
        """Bring the blob into the wanted cache state and restore once."""
        before = _STATES[self.wanted_cache][0](self.subject.blob)
        report = self.subject.run(self.route, self.digest, self.setting, self.place, self.at_most)
        self.found_place = report["place"]
        self.samples_s.append(report["wall_s"] - report["stages_s"]["ring"])
        self.residency_before.append(before)
        copying = self.setting.threads if self.subject.device == "host" else 1
        self.limits.append(limiting_stage(report, copying))


# How a file is brought into a state, and what proves it. A file that is not there yet needs neither.
_STATES: dict[str, tuple[Callable[[Path], float], Callable[[float], bool]]] = {
    "cold": (cache.make_cold, cache.is_cold),
    "warm": (cache.make_warm, cache.is_warm),
    "half": (cache.make_half, cache.is_half),
    "new": (lambda _: 0.0, lambda _: True),
}


def cold_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List the cases from the drive: direct with each digest, what a restore without a profile does, and buffered."""
    unprofiled = drive_default(setting)
    return [
        Case(restorer, "buffered", "cold", ALL_DIGESTS, setting),
        *(Case(restorer, "direct", "cold", digest, direct) for digest in DIGESTS),
        *([] if unprofiled == direct else [Case(restorer, "direct", "cold", ALL_DIGESTS, unprofiled)]),
        *on_host(restorer, Case(restorer, "direct", "cold", ALL_DIGESTS, direct)),
    ]


def drive_default(setting: Setting) -> Setting:
    """What a restore does with reads from the drive where no profile says otherwise, in a ring of `setting`."""
    chunk = min(DIRECT_DEFAULTS["chunk_bytes"], setting.chunk_bytes)
    depth = min(DIRECT_DEFAULTS["queue_depth"], setting.queue_depth)
    return Setting(chunk, depth, DIRECT_DEFAULTS["read_threads"])


def on_host(restorer: Restorer, *cases: Case) -> list[Case]:
    """The cases with digests from the staged bytes, where the device would compute them otherwise."""
    if restorer.device == "host":
        return []
    return [Case(each.subject, each.route, each.wanted_cache, each.digest, each.setting, "host") for each in cases]


def warm_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List the cases from the page cache, and direct reads, which pass it by."""
    shapes = [setting] if restorer.device == "host" else [setting, *_fewer_threads(setting)]
    found = [Case(restorer, "buffered", "warm", digest, each) for digest in DIGESTS for each in shapes]
    plain = [Case(restorer, "buffered", "warm", digest, setting) for digest in DIGESTS[1:]]
    return [*found, *on_host(restorer, *plain), Case(restorer, "direct", "warm", ALL_DIGESTS, direct)]


def fewer_threads_cases(restorer: Restorer, setting: Setting) -> list[Case]:
    """List what shows on the host whether three quarters of the threads do better where there is little to hash."""
    shapes = _fewer_threads(setting) if restorer.device == "host" else []
    return [Case(restorer, "buffered", "warm", digest, each) for digest in DIGESTS[:2] for each in shapes]


def _fewer_threads(setting: Setting) -> list[Setting]:
    """Where hashing takes no core's time, cores beyond what the copies need are in each other's way."""
    fewer = Setting(setting.chunk_bytes, setting.queue_depth, max(1, setting.threads * 3 // 4))
    return [] if fewer == setting else [fewer]


def small_cases(restorer: Restorer, setting: Setting) -> list[Case]:
    """List the cases of many small extents from the page cache, where what each extent costs shows most."""
    return [Case(restorer, "buffered", "warm", digest, setting) for digest in DIGESTS]


def half_cases(restorer: Restorer, setting: Setting, direct: Setting) -> list[Case]:
    """List what can be done with a blob of which every other piece is in the page cache."""
    settings = {"auto": both_ways(setting, direct), "buffered": setting, "direct": direct}
    return [Case(restorer, route, "half", DIGESTS[1], each) for route, each in settings.items()]


def both_ways(setting: Setting, direct: Setting) -> Setting:
    """A setting of `auto`: `setting`, and `direct` in the same ring for what has to come from the drive."""
    ring = (setting.chunk_bytes, setting.queue_depth, setting.threads)
    chunk, depth = min(direct.chunk_bytes, setting.chunk_bytes), min(direct.queue_depth, setting.queue_depth)
    return Setting(*ring, chunk, depth, direct.threads)


def bound_of(case: Measured, found: list[Ceiling]) -> Ceiling | None:
    """Find the ceiling that bounds a case.

    A capture ends once all of it is on the drive, by whichever route. A direct read passes the page cache by, so
    whatever is resident the drive bounds it, as it bounds every cold case. A warm buffered case is bound by the link to
    the device, or on the host by reading the page cache. Where no state could be proved (files in memory), the page
    cache is the only bound there is. A half-cached blob has none.
    """
    if case.operation == "capture":
        return ceilings.best(found, ceilings.RAW_DIRECT_WRITE)
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
