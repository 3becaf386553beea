"""The flags of `coldsnap calibrate`: what they are, what they may be, and the help that shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from coldsnap import errors, settings
from coldsnap._bench import flagset

USAGE = """\
Measure this machine and how close captures and restores come to it.

Writes a random blob, measures what drive, memory and link can do, restores the
blob by every route that works here, cold, warm and half cached, captures it,
and removes it again. Prints tables and what it recommends, writes results.json
with every sample, a page with plots beside it, and the profile that later
restores on this drive take threads and chunks from.

examples:
  coldsnap calibrate                          512 MiB, GPU or host memory
  coldsnap calibrate --path=/models           the drive that holds your models
  coldsnap calibrate --minutes=10             also search for better settings
  coldsnap calibrate --minutes=60 --sweep     or try the whole grid, until then
  coldsnap calibrate --resume                 go on where one was interrupted
  coldsnap calibrate --compare=old/results.json --fail_if_slower
                                              exit code 3 where it got slower
  coldsnap calibrate --compare=old/results.json --measured=new/results.json
                                              compare two, measure nothing
  coldsnap calibrate --bytes=536870912 --chunk_bytes=67108864 --queue_depth=2
                                              one setting, sizes in bytes
  coldsnap calibrate --bytes=781MiB --extents=50000
                                              small tensors, all of one size
  coldsnap calibrate --bytes=8GiB --cache=warm --operations=hydrate
                                              restores from the page cache alone
  coldsnap calibrate --device=cuda:0          this GPU, or the reason why not
  coldsnap calibrate --device=host            host memory in place of a GPU
  coldsnap calibrate --samples=9 --seed=7 --output=results --noreport
                                              more samples, no page with plots
  coldsnap calibrate --commit=$(cat commit.txt)
                                              note which commit the wheel has

from a checkout:  bazel run //bench:calibrate -- --bytes=512MiB

flags:
"""

CACHES = ("cold", "warm", "half")
OPERATIONS = ("hydrate", "capture")


@dataclass(frozen=True)
class Request:
    """The flags, checked one by one; None means that the machine decides."""

    nbytes: int
    extents: int | None
    hydration: dict[str, settings.Setting]
    path: Path | None
    device: str
    operations: frozenset[str]
    caches: frozenset[str]
    sweep: bool
    minutes: float | None
    samples: range
    asked_samples: bool
    seed: int
    commit: str | None
    output: Path | None
    resume: bool
    compare: Path | None
    measured: Path | None
    fail_if_slower: bool
    trace: Path | None
    report: bool | None


def parse_flags(argv: Sequence[str]) -> Request | None:
    """Read the flags; with --help print the help and give None.

    Raises:
        RequestInvalidError: A flag is unknown or its value out of range; the message has value and accepted values.
    """
    values = _define_flags()
    flagset.parse(values, argv)
    if values["help"].value:
        print(USAGE + _flag_lines(values), end="")
        return None
    get: dict[str, Any] = {name: values[name].value for name in values}
    # Chunk and depth follow the rules of every restore: flag, else environment, else default.
    chosen = {"chunk_bytes": get["chunk_bytes"], "queue_depth": get["queue_depth"]}
    paths: dict[str, Any] = {
        name: _path(name, get[name]) for name in ("path", "output", "compare", "measured", "trace")
    }
    for name in ("measured", "fail_if_slower"):
        if get[name] and get["compare"] is None:
            refuse(f"read --{name}: there is nothing to compare with", "give --compare=EARLIER.json too")
    return Request(
        nbytes=settings.parse_size(get["bytes"], "--bytes"),
        extents=None if get["extents"] is None else flagset.whole_number(values, "extents", 1, 1_000_000),
        hydration=settings.resolve(chosen | {"backend": "auto", "verify": "crc32+sha256"}, os.environ),
        device=_device(get["device"]),
        operations=_some_of("operations", get["operations"], OPERATIONS),
        caches=_some_of("cache", get["cache"], CACHES),
        minutes=None if get["minutes"] is None else _minutes(get["minutes"]),
        samples=_samples(values),
        asked_samples=get["samples"] is not None,
        seed=flagset.whole_number(values, "seed", 0, (1 << 53) - 1),  # what JSON keeps exact
        commit=commit_of(get["commit"]),
        **{name: get[name] for name in ("sweep", "resume", "fail_if_slower", "report")},
        **paths,
    )


def commit_of(text: str | None) -> str | None:
    """Check a commit that a person gives: a wheel does not know which one it was built from."""
    if text is not None and not re.fullmatch(r"[0-9a-f]{40}(-dirty)?", text):
        refuse(f"read --commit={text}", "give the 40 hex digits of git rev-parse HEAD, with -dirty if files differed")
    return text


def refuse(doing: str, remedy: str) -> NoReturn:
    """Raise what a wrong flag is answered with."""
    raise errors.RequestInvalidError(doing, remedy=remedy)


def _path(name: str, text: str | None) -> Path | None:
    return None if text is None else flagset.user_path(name, text)


def _device(text: str) -> str:
    kind, _, ordinal = text.partition(":")
    if text not in ("auto", "host") and not (kind == "cuda" and ordinal.isascii() and ordinal.isdigit()):
        refuse(f"restore to device {text!r}", "--device must be auto, host or cuda:N (cuda:0 is the first)")
    return text


def _some_of(name: str, text: str, known: Sequence[str]) -> frozenset[str]:
    wanted = frozenset(text.split(","))
    if not wanted <= set(known):
        refuse(f"read --{name}={text}", f"give some of {','.join(known)}, with commas between them")
    return wanted


def _minutes(text: str) -> float:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text) or not 0.05 <= float(text) <= 1440:
        refuse(f"read --minutes={text}", "give a number of minutes from 0.05 to 1440")
    return float(text)


def _samples(values: flags.FlagValues) -> range:
    """Give least and most samples: as many as asked for, else 5, of which a slow machine may leave out two.

    Not where results are compared: three a side would say nothing.
    """
    if values["samples"].value is None:
        return range(3, 5) if values["compare"].value is None else range(5, 5)
    count = flagset.whole_number(values, "samples", 1, 1000)
    return range(count, count)


def _define_flags() -> flags.FlagValues:
    """Define the flags."""
    values = flags.FlagValues()  # type: ignore[no-untyped-call]
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("bytes", "512MiB", "payload of the blob (512MiB)", **common)
    flags.DEFINE_string("extents", None, "that many extents of one size (32 of many sizes)", **common)
    flags.DEFINE_string("chunk_bytes", None, "bytes per slot, a multiple of 65536 (4MiB)", **common)
    flags.DEFINE_string("queue_depth", None, "slots in flight, 1 to 64 (2 x threads)", **common)
    flags.DEFINE_string("path", None, "folder on the drive to measure (your cache folder)", **common)
    flags.DEFINE_string("device", "auto", "auto (cuda:0 if it is there), host or cuda:N", **common)
    flags.DEFINE_string("operations", ",".join(OPERATIONS), "what to measure (hydrate,capture)", **common)
    flags.DEFINE_string("cache", ",".join(CACHES), "states of the page cache to measure (all three)", **common)
    flags.DEFINE_boolean("sweep", False, "also a grid of chunk x depth x threads x digest", **common)
    flags.DEFINE_string("minutes", None, "end by then; what is left goes into a search (1, without)", **common)
    flags.DEFINE_boolean("resume", False, "go on with an interrupted one in --output", **common)
    flags.DEFINE_string("compare", None, "an earlier results.json to compare with", **common)
    flags.DEFINE_string("measured", None, "compare this one with it, and measure nothing", **common)
    flags.DEFINE_boolean("fail_if_slower", False, "exit code 3 if a case is slower", **common)
    flags.DEFINE_string("trace", None, "file for a Perfetto trace of one restore by each route", **common)
    flags.DEFINE_boolean("report", None, "report.html in --output (where matplotlib is)", **common)
    flags.DEFINE_string("output", None, "folder for results.json (your state folder)", **common)
    flags.DEFINE_string("samples", None, "samples of each number (5; 3 or 4 where time is short)", **common)
    flags.DEFINE_string("seed", "0", "seed of the random bytes (0)", **common)
    flags.DEFINE_string("commit", None, "commit of a measured wheel (of a checkout: git's)", **common)
    flags.DEFINE_boolean("help", False, "this text", short_name="h", **common)
    return values


def _flag_lines(values: flags.FlagValues) -> str:
    """List the flags, one a line, in the order of `Request`'s themes."""
    shown = (
        *(
            "bytes",
            "extents",
            "chunk_bytes",
            "queue_depth",
            "path",
            "device",
            "operations",
            "cache",
            "sweep",
            "minutes",
        ),
        *("samples", "seed", "commit", "output", "resume", "compare", "measured", "fail_if_slower", "trace", "report"),
    )
    lines = []
    for name in shown:
        takes = "" if values[name].boolean else "=..."
        lines.append(f"  --{name + takes:<18}{values[name].help}")
    return "\n".join(lines) + "\n"
