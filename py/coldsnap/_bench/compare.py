"""Whether two calibrations differ: faster, slower, same or unclear for each case that both have.

Samples of one case are few, skewed and full of outliers, so nothing is assumed of their distribution. The estimate is
Hodges and Lehmann's: the median of all ratios of a sample of one run to a sample of the other. Its interval is the one
that belongs to the rank test of Mann and Whitney, exact for few samples (E. L. Lehmann, Nonparametrics, 1975, section
2.5; the counts by the recursion in H. B. Mann and D. R. Whitney, 1947): at 90 %, so each side is wrong once in twenty
times. Three samples a side are the fewest that give one.

That interval knows only what changes from sample to sample. A machine also changes from hour to hour: the same raw read
of a virtual drive gives 1.4 to 2.4 GB/s (bench/results/README.md). So each sample is also divided by the ceiling's of
its own round, and only what both say counts; between different machines the share of the ceiling alone.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any, NamedTuple

from coldsnap import errors
from coldsnap._bench.cases import ALL_DIGESTS, SHAPE, Setting, name_of

VERDICTS = ("faster", "slower", "same", "unclear")
# Runs of one program on one machine came out up to so far apart; less is no reason to choose anything either.
MARGIN = 0.10
_FROM_DRIVE = ("direct", "cold", ALL_DIGESTS)
_ALPHA = 0.10
_EXACT = 400  # pairs; beyond them the count of orders is as good as normal
_NORMAL_5_PERCENT = 1.645
_SAME_MACHINE = ("cpu", "architecture", "cores", "memory_bytes", "device", "gpu", "file_system", "drive")


class Interval(NamedTuple):
    """A ratio of rates, later to earlier: the estimate, and between what it lies; None where samples are too few."""

    ratio: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``faster`` or ``slower`` beyond the margin, ``same`` within it, else ``unclear``."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.low > 1 + MARGIN:
            return "faster"
        if self.high < 1 / (1 + MARGIN):
            return "slower"
        return "same" if self.low >= 1 / (1 + MARGIN) and self.high <= 1 + MARGIN else "unclear"


def ratio_of(earlier: list[float], later: list[float]) -> Interval:
    """How much more the values of `later` are than those of `earlier`; both are positive, such as rates."""
    ratios = sorted(one / other for one in later for other in earlier)
    rank = _rank(len(earlier), len(later))
    if rank is None:
        return Interval(statistics.median(ratios), None, None)
    return Interval(statistics.median(ratios), ratios[rank], ratios[-1 - rank])


def _rank(n: int, m: int) -> int | None:
    """How many of the n x m sorted ratios lie outside the interval on each side; None if not even the whole will do."""
    if n * m > _EXACT:
        return int(n * m / 2 - _NORMAL_5_PERCENT * math.sqrt(n * m * (n + m + 1) / 12))
    bound = _ALPHA / 2 * sum(_ways(u, n, m) for u in range(n * m + 1))
    below, rank = 0, None
    for u in range(n * m // 2):
        below += _ways(u, n, m)
        if below > bound:
            break
        rank = u
    return rank


@functools.cache
def _ways(u: int, n: int, m: int) -> int:
    """In how many orders of n and m values exactly `u` pairs stand the wrong way round."""
    if u < 0:
        return 0
    if n == 0 or m == 0:
        return int(u == 0)
    return _ways(u - m, n - 1, m) + _ways(u, n, m - 1)


def require_comparable(earlier: dict[str, Any], payload_bytes: int, extents: int | None, name: str) -> None:
    """Refuse to compare with a run of other data, before anything is measured.

    Raises:
        RequestInvalidError: The payload or its extents differ; the message has both.
    """
    asked = earlier.get("request", {}).get("extents", extents)  # kept results of before have none
    if (earlier["payload_bytes"], asked) != (payload_bytes, extents):
        raise errors.RequestInvalidError(
            f"compare with {name}: it moves {earlier['payload_bytes']} bytes in {asked or 'the usual'} extents, this "
            f"calibration {payload_bytes} in {extents or 'the usual'}",
            remedy=f"give --bytes={earlier['payload_bytes']}" + (f" --extents={asked}" if asked else ""),
        )


def drive_of(earlier: dict[str, Any] | None) -> Setting | None:
    """The setting for reads from the drive that a calibration chose: what differs in settings can't be compared."""
    if earlier is None:
        return None
    rows = [row for row in earlier["cases"] if (row["route"], row["cache"], row["digest"]) == _FROM_DRIVE]
    chosen = earlier.get("drive") or max(rows, key=lambda row: row["bytes_per_second"], default=None)
    return None if chosen is None else Setting(*(chosen[key] for key in SHAPE))


def compare(earlier: dict[str, Any], later: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare all cases that both results have, in the order of the later.

    Returns:
        For each its ``case`` (`cases.name_of`), ``verdict``, ``ratio`` of rates later to earlier with ``low`` and
        ``high`` (null where samples are too few), and ``why``.
    """
    same_machine = all(earlier["machine"].get(key) == later["machine"].get(key) for key in _SAME_MACHINE)
    before = {name_of(entry, earlier["payload_bytes"]): entry for entry in earlier["cases"]}
    rows = []
    for entry in later["cases"]:
        name = name_of(entry, later["payload_bytes"])
        if name in before:
            rates = [_rates(before[name], earlier), _rates(entry, later)]
            shares = [_shares(before[name], earlier), _shares(entry, later)]
            rows.append({"case": name} | _judged(rates, shares, same_machine))
    return rows


def _judged(rates: list[list[float]], shares: list[list[float] | None], same_machine: bool) -> dict[str, Any]:
    plain = ratio_of(*rates)
    before, after = shares
    relative = ratio_of(before, after) if before and after else None
    shown, verdict, why = plain, "unclear", ""
    if plain.low is None:
        why = f"{len(rates[0])} and {len(rates[1])} samples are too few; 3 and 3 will do"
    elif not same_machine and relative is None:
        why = "another machine, and no ceiling to measure it by"
    elif not same_machine:
        assert relative is not None
        shown, verdict, why = relative, relative.verdict, "another machine: shares of each one's own ceiling"
    elif relative is None or plain.verdict == relative.verdict:
        verdict = plain.verdict
        why = "" if verdict != "unclear" else f"the interval has more in it than {MARGIN:.0%}"
    else:
        why = f"{plain.verdict} by itself, {relative.verdict} as a share of its ceiling"
    numbers = {name: each and round(each, 4) for name, each in shown._asdict().items()}
    return {"verdict": verdict, **numbers, "why": why}


def _rates(entry: dict[str, Any], results: dict[str, Any]) -> list[float]:
    nbytes = entry.get("payload_bytes", results["payload_bytes"])
    return [nbytes / sample for sample in entry["samples_s"]]


def _shares(entry: dict[str, Any], results: dict[str, Any]) -> list[float] | None:
    """Each sample as a share of what its ceiling gave in the same round, or of its median where rounds differ."""
    ceilings = {each["name"]: each for each in results["ceilings"] if each["unit"] == "bytes_per_second"}
    ceiling = ceilings.get(entry["ceiling"] or _pace(ceilings))
    if ceiling is None or min(ceiling["samples"]) <= 0:
        return None
    rates = _rates(entry, results)
    paces = ceiling["samples"] if len(ceiling["samples"]) == len(rates) else [ceiling["median"]] * len(rates)
    return [rate / pace for rate, pace in zip(rates, paces, strict=True)]


def _pace(ceilings: dict[str, dict[str, Any]]) -> str:
    """What tells how fast the machine was, for a case that no ceiling bounds: the best raw read."""
    raw = {name: each["median"] for name, each in ceilings.items() if name.startswith("raw_direct_read.")}
    raw = {name: rate for name, rate in raw.items() if not name.endswith(".mixed")}
    return max(raw, key=lambda name: raw[name]) if raw else ""
