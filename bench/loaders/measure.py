"""What is sampled: one loader in one cache state, in rounds with the others and with the ceilings."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.loaders import base
from bench.loaders.process import LoaderError, Process
from bench.loaders.source import Source
from coldsnap._bench import cache, ceilings
from coldsnap._bench.ceilings import Ceiling

_SERVICE_LIMIT_S = 600.0  # for all but loads: importing torch, hashing, copying back


@dataclass
class Contestant:
    """One loader of the comparison and its process.

    Attributes:
        loader: Its name and what it says of itself.
        limit_s: Seconds for one load, before its process is ended.
        version: Of its package; None until it started.
        torch: The version that its process has.
        start_s: Seconds of its import and set-up.
        first_s: Seconds of its first load.
        out: Why it is not or no longer measured; empty while it is.
        wrong: Its first wrong byte; it is out then.
    """

    loader: base.Loader
    process: Process
    source: Source
    limit_s: float
    version: str | None = None
    torch: str | None = None
    start_s: float | None = None
    first_s: float | None = None
    out: str = ""
    wrong: str = ""

    def open(self, device: str, digests: Path) -> None:
        """Wait until its process has torch, and a context on the device."""
        blob = str(self.source.blob)
        opened = self._ask("open", "open", _SERVICE_LIMIT_S, path=blob, device=device, digests=str(digests))
        self.torch = opened["torch"] if opened else None

    def start(self) -> None:
        """Import its package and let it make what every load uses; what speaks against it is in `out`."""
        started = self._ask("start", "start", _SERVICE_LIMIT_S)
        if started is not None:
            self.version, self.start_s = started["version"], started["start_s"]
            if started["refused"]:
                self._leave(started["refused"])

    def first_load(self) -> None:
        """Load once, with the file in the page cache: what later loads find made is made here."""
        if not self.out:
            cache.make_warm(self.source.blob)
            done = self.load("first load")
            self.first_s = None if done is None else done["wall_s"]

    def load(self, doing: str) -> dict[str, Any] | None:
        """Load once, compare, release; give the worker's answer and the residency right after the load.

        Returns:
            None where it failed or gave a wrong byte: it is out then.
        """
        done = self._ask(doing, "load", self.limit_s)
        if done is None:
            return None
        done["residency"] = cache.residency(self.source.blob)
        compared = self._ask(doing, "compare", _SERVICE_LIMIT_S)
        if compared is not None and compared["wrong"]:
            self.wrong = compared["wrong"]
            self._leave(f"{doing}: WRONG BYTES: {self.wrong}")
            print(f"WRONG BYTES: {self.loader.name}, {doing}: {self.wrong}", flush=True)
        released = self._ask(doing, "release", _SERVICE_LIMIT_S)
        return None if released is None else done

    def _ask(self, doing: str, command: str, limit_s: float, **arguments: Any) -> dict[str, Any] | None:
        """Ask its process; an answer that does not come puts it out."""
        if self.out:
            return None
        try:
            return self.process.ask(command, limit_s, **arguments)
        except LoaderError as error:
            self._leave(f"{doing}: {error}")
            return None

    def _leave(self, why: str) -> None:
        """Go out, and end the process: it may hold memory that the others need."""
        self.out = why
        self.process.close()


@dataclass
class Row:
    """The samples of one loader in one cache state, times in seconds, residency as a fraction of the file."""

    contestant: Contestant
    wanted_cache: str
    samples_s: list[float] = field(default_factory=list)
    residency_before: list[float] = field(default_factory=list)
    residency_after: list[float] = field(default_factory=list)
    how: str = ""

    @property
    def label(self) -> str:
        """What the progress line says."""
        return f"{self.contestant.loader.name}, {self.wanted_cache}"

    @property
    def cache(self) -> str:
        """``cold`` or ``warm`` if residency proved it before every sample, else ``mixed``."""
        proves = cache.is_cold if self.wanted_cache == "cold" else cache.is_warm
        return self.wanted_cache if all(map(proves, self.residency_before)) else "mixed"

    @property
    def median_s(self) -> float:
        """The median sample."""
        return statistics.median(self.samples_s)

    def sample(self) -> None:
        """Bring the file into the state, and load it once."""
        if self.contestant.out:
            return
        blob = self.contestant.source.blob
        if self.wanted_cache == "cold":
            for file in self.contestant.source.files():
                cache.make_cold(file)
            before = cache.residency(blob)
        else:
            before = cache.make_warm(blob)
        done = self.contestant.load(f"{self.wanted_cache} sample {len(self.samples_s) + 1}")
        if done is not None:
            self.samples_s.append(done["wall_s"])
            self.residency_before.append(before)
            self.residency_after.append(done["residency"])
            self.how = done["how"]


def bound_of(row: Row, found: list[Ceiling]) -> Ceiling | None:
    """Find the ceiling that bounds a row: the drive if it was cold, else the link to the device, or host memory."""
    drive = ceilings.best(found, ceilings.RAW_DIRECT_READ, ceilings.RAW_BUFFERED_READ)
    memory = ceilings.best(found, ceilings.PINNED_H2D) or ceilings.best(found, ceilings.PAGE_CACHE_READ)
    return drive if row.cache == "cold" else memory


def loaders_of(contestants: list[Contestant]) -> list[dict[str, Any]]:
    """Give the entries of ``loaders`` in peers.json."""
    return [
        {
            "name": each.loader.name,
            "package": each.loader.distribution,
            "version": each.version,
            "checks": each.loader.checks,
            "start_s": _rounded(each.start_s),
            "first_s": _rounded(each.first_s),
            "out": without_folders(each.out) or None,
            "wrong": each.wrong or None,
        }
        for each in contestants
    ]


def cases_of(rows: list[Row], payload_bytes: int, found: list[Ceiling]) -> list[dict[str, Any]]:
    """Give the entries of ``cases`` in peers.json; rows without a sample have none."""
    cases = []
    for row in rows:
        if row.samples_s:
            rate, bound = payload_bytes / row.median_s, bound_of(row, found)
            cases.append(
                {
                    "operation": "load",
                    "loader": row.contestant.loader.name,
                    "cache": row.cache,
                    "how": row.how,
                    "samples_s": [round(each, 6) for each in row.samples_s],
                    "median_s": round(row.median_s, 6),
                    "bytes_per_second": round(rate),
                    "ceiling": bound.name if bound else None,
                    "ratio": round(rate / bound.median, 4) if bound else None,
                    "residency_before": [round(each, 4) for each in row.residency_before],
                    "residency_after": [round(each, 4) for each in row.residency_after],
                }
            )
    return cases


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def without_folders(text: str) -> str:
    """Leave the folders out of the paths in a text: results name no place of the machine."""
    return re.sub(r"(?<![\w.])(?:/[^\s/:'\"]+)*/(?=[^\s/:'\"])", "", text)
