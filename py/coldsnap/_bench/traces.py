"""Reads what the threads of restores did, from a trace that `coldsnap calibrate --trace=FILE` wrote.

For whatever draws it: the figure of docs/restore.md and the timeline of a report, in the same colours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coldsnap import errors


class Span(NamedTuple):
    """One span of a trace: microseconds on the trace's own clock."""

    lane: str
    name: str
    begin_us: float
    end_us: float


class Restore(NamedTuple):
    """The spans of one restore, lanes in the order of the trace's threads."""

    route: str
    begin_us: float
    end_us: float
    spans: list[Span]


class Stage(NamedTuple):
    """A colour, what it means, and the names that its spans have in a trace."""

    key: str
    colour: str
    meaning: str
    names: tuple[str, ...]


# Most colours are those of Okabe and Ito, "Color Universal Design" (2008), which people with any kind of colour
# blindness tell apart; greys are for those who only wait for somebody else.
STAGES = (
    Stage(
        "prepare", "#009e73", "open, make the ring, wait for the caller's streams", ("open", "ring", "wait for streams")
    ),
    Stage("move", "#a89f91", "the caller waits for its threads", ("move",)),
    Stage("slot", "#d55e00", "wait for an empty slot", ("wait for a slot",)),
    Stage("read", "#0072b2", "read into a slot", ("read",)),
    Stage("digest", "#56b4e9", "compute digests on the host", ("digest",)),
    Stage("filled", "#8795a5", "wait for a filled slot", ("wait for a read",)),
    Stage("send", "#e69f00", "submit the copy and the digest kernel", ("send", "let the device hash")),
    Stage("digests", "#cc79a7", "wait for copies and the device's digests", ("wait for digests", "drain")),
    Stage("publish", "#8c564b", "compare whole extents, publish", ("publish",)),
)
STAGE_OF = {name: stage for stage in STAGES for name in stage.names}


def restores_of(trace: Any) -> list[Restore]:
    """The whole restores of a trace, in order of time.

    Raises:
        RequestInvalidError: It is no trace of ours, or has no restore that came to its end.
    """
    try:
        lanes = lanes_of(trace)
        spans = [span_of(each, lanes[each["tid"]]) for each in trace["traceEvents"] if each["ph"] == "X"]
    except (KeyError, TypeError, AttributeError) as error:
        raise no_trace(f"it is none ({type(error).__name__}: {error})") from error
    begins = sorted(span.begin_us for span in spans if (span.lane, span.name) == ("caller", "open"))
    ends = sorted(span.end_us for span in spans if (span.lane, span.name) == ("caller", "publish"))
    if not begins or len(begins) != len(ends):
        raise no_trace(f"it has {len(begins)} restores that began and {len(ends)} that were published")
    found = []
    for begin_us, end_us in zip(begins, ends, strict=True):
        own = [span for span in spans if begin_us <= span.begin_us <= end_us]
        reads = any(role_of(span.lane) == "read" for span in own)  # past the page cache some threads only read
        found.append(Restore("direct" if reads else "buffered", begin_us, end_us, own))
    return found


def no_trace(cause: str) -> errors.RequestInvalidError:
    """The refusal of a trace that can't be drawn."""
    return errors.RequestInvalidError(
        f"draw a trace: {cause}", remedy="write one with coldsnap calibrate --trace=FILE on a drive with direct I/O"
    )


def lanes_of(trace: Any) -> dict[int, str]:
    """The lane of each thread number, in the trace's order."""
    events = trace["traceEvents"]
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def span_of(event: dict[str, Any], lane: str) -> Span:
    """The span of an event of the phase ``X``."""
    return Span(lane, event["name"], event["ts"], event["ts"] + event["dur"])


def role_of(lane: str) -> str:
    """What a thread is there for: its lane without its number."""
    return lane.rstrip("0123456789").rstrip()
