"""Whether two calibrations differ: faster, slower, same or unclear for each case that both have.

Samples of one case are few, skewed and full of outliers, so nothing is assumed of their distribution. The estimate is
Hodges and Lehmann's: the median of all ratios of a sample of one run to a sample of the other. Its interval is the one
that belongs to the rank test of Mann and Whitney, exact for few samples (E. L. Lehmann, Nonparametrics, 1975, section
2.5; the counts by the recursion in H. B. Mann and D. R. Whitney, 1947): at 95 %, so each side is wrong once in forty
times. It takes four samples a side, or three and five.

That interval knows only what changes from sample to sample. A machine also changes from hour to hour: the same raw read
of a virtual drive gives 1.4 to 2.4 GB/s (bench/results/README.md), and its processors have other work. So each sample is
also divided by what plain reads or writes of its kind, and what all processors together, gave in the same round. Only
what all three say counts; between different machines the share of plain reads or writes alone. Even so, a load does not
cost every case as much as the probes beside it, and samples of one run are seconds apart, so that none of them knows
another hour. How much the probes themselves have changed tells how much that may be: by that factor a case has to be
further from equal.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from coldsnap import errors
from coldsnap._bench.cases import ALL_DIGESTS, SHAPE, Setting, name_of

VERDICTS = ("faster", "slower", "same", "unclear")
MARGIN = 0.10  # less is no reason to change anything
_FROM_DRIVE = ("direct", "cold", ALL_DIGESTS)
_ALPHA = 0.05
_EXACT = 400  # pairs; beyond them the count of orders is as good as normal
_SAME_MACHINE = ("cpu", "architecture", "cores", "memory_bytes", "device", "gpu", "file_system", "drive")


Entry = dict[str, Any]
Results = dict[str, Any]
Ceilings = dict[str, dict[str, Any]]


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

    def beyond(self, factor: float) -> bool:
        """Whether the whole interval is more than `factor` times away from equal."""
        return self.low is not None and self.high is not None and (self.low > factor or self.high < 1 / factor)


def ratio_of(earlier: list[float], later: list[float], alpha: float = _ALPHA) -> Interval:
    """How much more the values of `later` are than those of `earlier`; both are positive, such as rates.

    Args:
        earlier: Values, in any order.
        later: The same.
        alpha: How often the interval may miss the true ratio; 0.05 or 0.1.
    """
    ratios = sorted(one / other for one in later for other in earlier)
    rank = _rank(len(earlier), len(later), alpha)
    if rank is None:
        return Interval(statistics.median(ratios), None, None)
    return Interval(statistics.median(ratios), ratios[rank], ratios[-1 - rank])


def _rank(n: int, m: int, alpha: float) -> int | None:
    """How many of the n x m sorted ratios lie outside the interval on each side; None if not even the whole will do."""
    if n * m > _EXACT:
        quantile = statistics.NormalDist().inv_cdf(1 - alpha / 2)
        return int(n * m / 2 - quantile * math.sqrt(n * m * (n + m + 1) / 12))
    bound = alpha / 2 * sum(_ways(u, n, m) for u in range(n * m + 1))
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
            pair = ((before[name], earlier), (entry, later))
            plain = ratio_of(_rates(*pair[0]), _rates(*pair[1]))
            shares = [_ratio_of_shares(pair, which) for which in (_io_of, _processors_of)]
            drift = max(_drift(pair, which) for which in (_io_of, _processors_of))
            row = _judged(plain, *shares, same_machine=same_machine, drift=drift)
            if None in (each.get("processors", "") for each, _ in pair):
                row |= {"verdict": "unclear", "why": "measured beside other rounds, with nothing to tell the pace by"}
            rows.append({"case": name} | row)
    return rows


def _judged(
    plain: Interval, of_io: Interval | None, of_processors: Interval | None, *, same_machine: bool, drift: float
) -> dict[str, Any]:
    shown, verdict, why = plain, "unclear", ""
    asked = [each for each in (plain, of_io, of_processors) if each is not None]
    said = [each.verdict for each in asked]
    if plain.low is None:
        why = "too few samples: 4 and 4 will do, or 3 and 5"
    elif not same_machine and of_io is None:
        why = "another machine, and nothing to measure it by"
    elif not same_machine:
        assert of_io is not None
        shown, verdict, why = of_io, of_io.verdict, "another machine: shares of each one's own plain reads or writes"
    elif set(said) in ({"faster"}, {"slower"}) and not all(each.beyond((1 + MARGIN) * drift) for each in asked):
        why = f"{plain.verdict}, but the machine itself changed its pace by {drift:.2f} times, and load is not shared evenly"
    elif len(set(said)) == 1:
        verdict = plain.verdict
        why = "" if verdict != "unclear" else f"the interval has more in it than {MARGIN:.0%}"
    else:
        words = ("by itself", "for what plain reads or writes gave", "for what the processors gave")
        parts = zip((plain, of_io, of_processors), words, strict=True)
        why = ", ".join(f"{each.verdict} {word}" for each, word in parts if each is not None)
    numbers = {name: each and round(each, 4) for name, each in shown._asdict().items()}
    return {"verdict": verdict, **numbers, "why": why}


def _rates(entry: Entry, results: Results) -> list[float]:
    nbytes = entry.get("payload_bytes", results["payload_bytes"])
    return [nbytes / sample for sample in entry["samples_s"]]


def _ratio_of_shares(pair: Sequence[tuple[Entry, Results]], which: Callable[[Entry, Ceilings], str]) -> Interval | None:
    shares = [_shares(*each, which) for each in pair]
    before, after = shares
    return ratio_of(before, after) if before and after else None


def _shares(entry: Entry, results: Results, which: Callable[[Entry, Ceilings], str]) -> list[float] | None:
    """Each sample as a share of what a probe gave in the same round, or of its median where rounds differ."""
    probe = _probe(entry, results, which)
    if probe is None:
        return None
    rates = _rates(entry, results)
    paces = probe["samples"] if len(probe["samples"]) == len(rates) else [probe["median"]] * len(rates)
    return [rate / pace for rate, pace in zip(rates, paces, strict=True)]


def _drift(pair: Sequence[tuple[Entry, Results]], which: Callable[[Entry, Ceilings], str]) -> float:
    """How much a probe changed between two runs, as a factor of at least 1; 1 where one of them has none."""
    probes = [_probe(*each, which) for each in pair]
    before, after = probes
    if before is None or after is None:
        return 1.0
    ratio = ratio_of(before["samples"], after["samples"]).ratio
    return max(ratio, 1 / ratio)


def _probe(entry: Entry, results: Results, which: Callable[[Entry, Ceilings], str]) -> dict[str, Any] | None:
    """What `which` names of the ceilings; None if there is none, or it once gave nothing."""
    ceilings = {each["name"]: each for each in results["ceilings"] if each["unit"] == "bytes_per_second"}
    probe = ceilings.get(which(entry, ceilings))
    return None if probe is None or min(probe["samples"]) <= 0 else probe


def _processors_of(entry: Entry, ceilings: Ceilings) -> str:
    return entry.get("processors") or ""


def _io_of(entry: Entry, ceilings: Ceilings) -> str:
    """The probe that does the same to drive and page cache without our code: the ceiling, or nearer than it."""
    near = {("buffered", "cold"): ["raw_buffered_read"]}.get((entry["route"], entry["cache"]), [])
    if entry["ceiling"] is None:  # half cached, which nothing bounds
        near = ["raw_half_read", "raw_direct_read"]
    for family in near:
        medians = {name: each["median"] for name, each in ceilings.items() if name.startswith(f"{family}.")}
        medians = {name: rate for name, rate in medians.items() if not name.endswith(".mixed")}
        if medians:
            return max(medians, key=lambda name: medians[name])
    return entry["ceiling"] or ""
