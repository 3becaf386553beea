"""``coldsnap calibrate`` and ``bazel run //bench:calibrate``: which route, chunk and depth are right on this machine.

The order of things, and why: refuse what cannot fit before anything is written; measure memory and raw writes while the
source is in memory; write the blob; prove that each route restores it byte for byte; then cold reads and cold restores
in the same rounds, warm ones after them, so that each ratio compares numbers of the same minutes. The blob's folder is
gone at the end, whichever end that is (`_bench.workspace`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from coldsnap import errors, settings, state
from coldsnap._bench import flagset, workspace
from coldsnap._bench.sizes import MIB, format_size

USAGE = """\
Measure this machine and how close restores come to it.

Writes a random blob, measures what drive, memory and link can do, restores the
blob by every route that works here, cold, warm and half cached, and removes it
again. Prints two tables, writes results.json with every sample, and the profile
that later restores on this drive take threads and chunks from.

examples:
  coldsnap calibrate                          512 MiB, GPU or host memory
  coldsnap calibrate --path=/models           the drive that holds your models
  coldsnap calibrate --bytes=536870912 --chunk_bytes=67108864 --queue_depth=2
                                              one setting, sizes in bytes
  coldsnap calibrate --bytes=4GiB --sweep     chunk x depth x threads as well
  coldsnap calibrate --bytes=781MiB --extents=50000
                                              small tensors, all of one size
  coldsnap calibrate --bytes=8GiB --cache=warm
                                              from the page cache alone
  coldsnap calibrate --device=cuda:0          this GPU, or the reason why not
  coldsnap calibrate --device=host            host memory in place of a GPU
  coldsnap calibrate --samples=9 --seed=7 --output=results
                                              more samples, results/results.json
  coldsnap calibrate --commit=$(cat commit.txt)
                                              note which commit the wheel has

from a checkout:  bazel run //bench:calibrate -- --bytes=512MiB

flags:
"""

# Seconds after the start at which a part is content with its least number of samples, so that the default ends within
# a minute. A part that began late still takes the least.
_MEMORY_BY_S = 8.0
_COLD_BY_S = 32.0
_WARM_BY_S = 46.0
_CACHES = ("cold", "warm", "half")
_SWEEP_CHUNKS = [1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB]


@dataclass(frozen=True)
class Request:
    """The flags, checked one by one; None means that the machine decides."""

    nbytes: int
    extents: int | None
    hydration: dict[str, settings.Setting]
    path: Path | None
    device: str
    sweep: bool
    caches: frozenset[str]
    trace: Path | None
    output: Path | None
    samples: range
    seed: int
    commit: str | None


def main(argv: Sequence[str]) -> int:
    """Calibrate.

    Args:
        argv: The program's name, then the flags.
    Returns:
        The exit code: 0 done; 2 a flag is wrong or the machine too small, nothing was written; 4 a restore gave wrong
        bytes; 5 the machine failed; 130 or 143 interrupted. Failures are one sentence on stderr.
    """
    with workspace.signals_raise():
        try:
            request = parse_flags(argv)
            if request is not None:
                run(request)
            sys.stdout.flush()
            return 0
        except errors.Error as error:
            return workspace.leave(_fail(str(error), error.exit_code))
        except workspace.Interrupted as error:
            workspace.remove_folders()
            return workspace.leave(_fail(f"{error}; the blob is removed, no results were written", error.exit_code))
        except BrokenPipeError:
            # Nobody reads our output any more; without this the interpreter would complain about it once again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _fail("write to standard output: its reader has closed it", 5)


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
    hydration = settings.resolve(chosen | {"backend": "auto", "verify": "crc32+sha256"}, os.environ)
    kind, _, ordinal = get["device"].partition(":")
    if get["device"] not in ("auto", "host") and not (kind == "cuda" and ordinal.isascii() and ordinal.isdigit()):
        _refuse(f"restore to device {get['device']!r}", "--device must be auto, host or cuda:N (cuda:0 is the first)")
    return Request(
        nbytes=settings.parse_size(get["bytes"], "--bytes"),
        extents=None if get["extents"] is None else flagset.whole_number(values, "extents", 1, 1_000_000),
        hydration=hydration,
        path=None if get["path"] is None else flagset.user_path("path", get["path"]),
        device=get["device"],
        sweep=get["sweep"],
        caches=_caches(get["cache"]),
        trace=None if get["trace"] is None else flagset.user_path("trace", get["trace"]),
        output=None if get["output"] is None else flagset.user_path("output", get["output"]),
        samples=_samples(values),
        seed=flagset.whole_number(values, "seed", 0, (1 << 53) - 1),  # what JSON keeps exact
        commit=commit_of(get["commit"]),
    )


def run(request: Request) -> dict[str, Any]:
    """Run the whole calibration and print its tables; raises before anything is written if it cannot end well.

    Returns:
        What results.json has.
    """
    begun = time.monotonic()
    # Only now: numpy, rich and the native module take time that neither --help nor a wrong flag should cost.
    from coldsnap import _native
    from coldsnap._bench import arena, best, cases, ceilings, cuda, host, machine, report, results

    if request.nbytes < arena.MIN_BYTES:
        _refuse(
            f"write a blob of {request.nbytes} bytes: too few for its {len(arena.SMALL_BYTES)} small extents and "
            f"{len(arena.LARGE_SHARES)} large ones",
            f"give at least --bytes={arena.MIN_BYTES}",
        )
    device, first_line = choose_device(request.device)
    limits = _native.limits()
    cores = settings.default_read_threads(limits)
    fitted, reasons = settings.fit_ring(request.hydration, limits)
    chosen = {name: each.value for name, each in fitted.items()}
    asked_for = any(fitted[name].chosen for name in ("chunk_bytes", "queue_depth", "read_threads"))
    setting = cases.Setting(chosen["chunk_bytes"], chosen["queue_depth"], chosen["read_threads"])
    output = _checked_output(request.output)
    parent = _checked_folder(request.path) if request.path else workspace.default_parent()
    pieces = arena.equal_pieces(request.nbytes, request.extents) if request.extents else arena.pieces_of(request.nbytes)
    host.require_space(parent, request.nbytes)
    ring = setting.chunk_bytes * setting.queue_depth
    host.require_memory(request.nbytes, ring, on_host=device == "host")
    require_device_memory(device, arena.arena_bytes(pieces))

    mount = host.mount_of(parent)
    commit, record = request.commit or machine.commit_or_version(), machine.machine_record(device, parent)
    print(first_line)
    print(f"blob: {format_size(request.nbytes)} of random bytes (seed {request.seed}), {len(pieces)} extents")
    print(f"folder: {parent} ({mount.kind})")
    print(
        f"setting: chunk {format_size(setting.chunk_bytes)}, depth {setting.queue_depth}, {setting.threads} threads; "
        f"{request.samples.stop} samples each",
        flush=True,
    )

    notes = [reason["detail"] for reason in reasons]
    if mount.kind in host.MEMORY_FILE_SYSTEMS:
        notes.append(f"{mount.kind} keeps its files in memory: nothing here is cold, such samples are marked mixed")
    ladder = ceilings.thread_ladder(cores)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(workspace.working_folder(parent))
        artifact = folder / "artifact"
        source = arena.HostArena(pieces)
        source.fill(request.seed, cores)
        found = ceilings.copies_and_digests(source, cores)
        found += ceilings.direct_writes(folder, source, min(4, ladder[-1]))
        with report.progress(len(found) * request.samples.stop) as advance:
            report.run_rounds(found, request.samples, begun + _MEMORY_BY_S, advance)

        with report.progress(1 + len(cases.ROUTES)) as advance:
            advance("write the blob")
            workspace.interruptible(lambda: write_blob(artifact, pieces, source))
            if device == "host":
                target: arena.HostArena | arena.DeviceArena = source
            else:
                del source
                target = arena.DeviceArena(stack.enter_context(cuda.DeviceMemory(device, arena.arena_bytes(pieces))))
            restorer = cases.Restorer(artifact, pieces, target, device, chosen["pinned_max_bytes"])
            routes = []
            for route in cases.ROUTES:
                advance(f"check {route}")
                target.clear(cores)
                try:
                    restorer.run(route, cases.ALL_DIGESTS, setting)
                except errors.RouteUnavailableError as error:
                    notes.append(f"{route} does not work here: {error}")
                    continue
                arena.require_equal(target, pieces, request.seed, route)
                routes.append(route)

        direct = setting
        if "direct" in routes and not asked_for and request.caches & {"cold", "half"}:
            with report.progress(1) as advance:
                advance("try chunks and threads for direct reads")
                direct = cases.tuned_direct(restorer, setting, ladder)
        ring_s = [restorer.make_ring(setting) for _ in range(request.samples.stop)]
        cold_reads = ceilings.cold_reads(restorer.blob, ladder) if request.caches & {"cold", "half"} else []
        cold_reads += ceilings.hashed_reads(restorer.blob, ladder) if "direct" in routes and cold_reads else []
        warm_reads = ceilings.cached_reads(restorer.blob, ladder) if "warm" in request.caches else []
        pinned = [] if device == "host" else ceilings.pinned_copies(device, request.nbytes)

        def wanted(found: list[cases.Case]) -> list[cases.Case]:
            working = {*routes, "auto"}
            # A direct read is bound by the drive, which is measured with the cold ones.
            return [
                each
                for each in found
                if each.route in working
                and each.wanted_cache in request.caches
                and (each.route != "direct" or cold_reads)
            ]

        cold = wanted(cases.cold_cases(restorer, setting, direct))
        warm = wanted(cases.warm_cases(restorer, setting, direct))
        half = wanted(cases.half_cases(restorer, setting, direct))
        grid = wanted(cases.sweep_cases(restorer, ladder, _SWEEP_CHUNKS)) if request.sweep else []
        rounds: list[tuple[list[Any], float]] = [([*cold_reads, *cold], _COLD_BY_S)]
        rounds += [([*warm_reads, *pinned, *warm], _WARM_BY_S), (half, _WARM_BY_S)]
        rounds += [([each for each in grid if each.wanted_cache == state], _WARM_BY_S) for state in ("cold", "warm")]
        with report.progress(sum(len(steps) for steps, _ in rounds) * request.samples.stop) as advance:
            for steps, by_s in rounds:
                report.run_rounds(steps, request.samples, begun + by_s, advance)
        found = [*cold_reads, *warm_reads, *pinned, *found]

        if request.trace is not None:
            notes.append(_write_trace(request.trace, restorer, routes, setting, direct))
    measured = [*cold, *half, *warm, *grid]
    workspace.go_on()
    document = results.results_of(commit, record, request.seed, request.nbytes, found, measured, (setting, ring_s))
    written = results.write_json(output, "results.json", document, 0o777 if request.output else 0o700)
    print()
    report.print_tables(found, document)
    print()
    notes += _notes(found, measured) + _hashing_note(found, cold)
    if asked_for or request.extents or request.caches != set(_CACHES):
        notes.append("no profile was written: it holds what is best, and a setting, a shape or a cache was asked for")
    else:
        notes += best.write_profile(parent, device, document, commit)
    for note in dict.fromkeys(notes):
        print(f"note: {note}")
    print(f"every restore was verified, and compared with its source; took {time.monotonic() - begun:.1f} s")
    report.print_best(document, written)
    return document


def write_blob(folder: Path, pieces: Sequence[Any], source: Any) -> None:
    """Write the pieces as one artifact at `folder`, through the only writer of the format."""
    from coldsnap import _native

    tensors: list[tuple[Any, ...]] = []
    for number, piece in enumerate(pieces):
        address = source.address + piece.offset
        shape, strides = [piece.nbytes], [1]
        storage = (address, address, piece.nbytes)
        tensors.append((piece.name, "U8", shape, strides, *storage, number, "", []))
    identity = json.dumps({"kind": "calibration"}, separators=(",", ":"))
    _native.write_artifact(str(folder), tensors, identity, "{}", "{}")


def choose_device(asked: str) -> tuple[str, str]:
    """Decide where restores go, and word the first line.

    Raises:
        RequestInvalidError: The CUDA device that was asked for is not there; the message has the driver's reason.
    """
    from coldsnap import _native

    if asked == "host":
        return "host", "measuring host memory (asked for by --device=host)"
    count, reason = _native.cuda_devices()
    if asked == "auto":
        if count == 0:
            return "host", f"no GPU: measuring host memory ({reason})"
        asked = "cuda:0"
    if int(asked.partition(":")[2]) >= count:
        why = f"the last of {count} here is cuda:{count - 1}" if count else f"there is no CUDA device ({reason})"
        _refuse(f"restore to device {asked}: {why}", "give --device=host to measure host memory")
    return asked, f"GPU: {_native.device_name(asked)} ({asked})"


def require_device_memory(device: str, nbytes: int) -> None:
    """Refuse a destination that the device's free memory cannot hold with 256 MiB to spare."""
    if device == "host":
        return
    from coldsnap import _native

    free = _native.device_free_bytes(device)
    if nbytes + 256 * MIB > free:
        _refuse(
            f"restore to {device}: needs {nbytes + 256 * MIB} bytes of device memory, and {free} are free",
            "give a smaller --bytes or another --device",
        )


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        what = "it is not a folder" if path.exists() else "it does not exist"
        _refuse(f"write the blob into --path={path}: {what}", "give an existing folder on the drive to measure")
    if not os.access(path, os.W_OK | os.X_OK):
        _refuse(f"write the blob into --path={path}: no right to write there", "give a folder of yours on that drive")
    return path


def _checked_output(path: Path | None) -> Path:
    """Choose the folder of results.json, and see early whether it can be written; nothing is made yet."""
    if path is None:
        path = state.state_dir(os.environ) / "calibration"
    standing = path
    while not standing.exists() and standing != standing.parent:
        standing = standing.parent
    if not standing.is_dir():
        _refuse(f"write results.json into {path}: {standing} is a file", "give another --output")
    if not os.access(standing, os.W_OK | os.X_OK):
        _refuse(f"write results.json into {path}: no right to write in {standing}", "give another --output")
    return path


def _notes(found: Sequence[Any], measured: Sequence[Any]) -> list[str]:
    """Say what is missing from the tables, and what could not be proved."""
    notes = [f"{each.family.replace('_', ' ')} is not possible here: {each.refused}" for each in found if each.refused]
    notes += [f"{each.route} failed: {each.refused}" for each in measured if each.refused]
    for each in (case for case in measured if case.cache == "mixed"):
        low, high = f"{min(each.residency_before):.0%}", f"{max(each.residency_before):.0%}"
        share = low if low == high else f"{low} to {high}"
        notes.append(f"{each.route}, wanted {each.wanted_cache}: {share} was in the page cache, so it is mixed")
    if any(case.route == "direct" and case.cache == "warm" for case in measured):
        notes.append("direct warm: all of the blob was in the page cache; a direct read from a drive passes it by")
    counts = {len(each.samples) for each in found if each.samples} | {len(each.samples_s) for each in measured}
    if len(counts - {0}) > 1:
        notes.append(f"some numbers have {min(counts - {0})} samples, to end in time; --samples=N takes all of them")
    return notes


def _write_trace(path: Path, restorer: Any, routes: Sequence[str], buffered: Any, direct: Any) -> str:
    """Write what each thread does in a cold restore by ``direct`` and a warm one by ``buffered``; give a note.

    Raises:
        IoError: It can't be written.
    """
    from coldsnap import _native
    from coldsnap._bench import cache, cases

    trace = _native.Trace()
    if "direct" in routes:
        cache.make_cold(restorer.blob)
        restorer.run("direct", cases.ALL_DIGESTS, direct, trace=trace)
    cache.make_warm(restorer.blob)
    restorer.run("buffered", cases.ALL_DIGESTS, buffered, trace=trace)
    try:
        path.write_text(trace.to_json(), encoding="utf-8")
    except OSError as error:
        raise errors.from_errno(error, f"write the trace {path.name}", remedy="give another --trace") from error
    return f"{path.name} has a trace of both routes, for Perfetto"


def _hashing_note(found: Sequence[Any], cold: Sequence[Any]) -> list[str]:
    """Compare verified direct restores with direct reads that are hashed by code which is not ours."""
    from coldsnap._bench import cases, ceilings

    probe = ceilings.best(list(found), ceilings.DIRECT_READ_HASHED)
    ours = [each for each in cold if each.route == "direct" and each.digest == cases.ALL_DIGESTS and each.samples_s]
    ours = [each for each in ours if each.found_place == "host"]
    if probe is None or not ours:
        return []
    (case,) = ours
    share = case.restorer.payload_bytes / case.median_s / probe.median
    return [
        f"direct, cold, crc32+sha256 on the host: {share:.0%} of what Python's own hashes reach behind direct reads"
    ]


def _caches(text: str) -> frozenset[str]:
    """Read the states of the page cache that are wanted.

    Raises:
        RequestInvalidError: One is not known.
    """
    wanted = frozenset(text.split(","))
    if not wanted <= set(_CACHES):
        _refuse(f"read --cache={text}", f"give some of {','.join(_CACHES)}, with commas between them")
    return wanted


def _samples(values: flags.FlagValues) -> range:
    """Give least and most samples: as many as asked for, else 5, of which a slow machine may leave out two."""
    if values["samples"].value is None:
        return range(3, 5)
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
    flags.DEFINE_string("cache", ",".join(_CACHES), "states of the page cache to measure (all three)", **common)
    flags.DEFINE_boolean("sweep", False, "also a grid of chunk x depth x threads", **common)
    flags.DEFINE_string("trace", None, "file for a Perfetto trace of one restore by each route", **common)
    flags.DEFINE_string("output", None, "folder for results.json (your state folder)", **common)
    flags.DEFINE_string("samples", None, "samples of each number (5; 3 or 4 where time is short)", **common)
    flags.DEFINE_string("seed", "0", "seed of the random bytes (0)", **common)
    flags.DEFINE_string("commit", None, "commit of a measured wheel (of a checkout: git's)", **common)
    flags.DEFINE_boolean("help", False, "this text", short_name="h", **common)
    return values


def _flag_lines(values: flags.FlagValues) -> str:
    """List the flags, one a line."""
    shown = (
        "bytes",
        "extents",
        "chunk_bytes",
        "queue_depth",
        "path",
        "device",
        "cache",
        "sweep",
        "trace",
        "output",
        "samples",
        "seed",
        "commit",
    )
    lines = [f"  --{name + ('' if name == 'sweep' else '=...'):<18}{values[name].help}" for name in shown]
    return "\n".join(lines) + "\n"


def commit_of(text: str | None) -> str | None:
    """Check a commit that a person gives: a wheel does not know which one it was built from."""
    if text is not None and not re.fullmatch(r"[0-9a-f]{40}(-dirty)?", text):
        _refuse(f"read --commit={text}", "give the 40 hex digits of git rev-parse HEAD, with -dirty if files differed")
    return text


def _refuse(doing: str, remedy: str) -> NoReturn:
    raise errors.RequestInvalidError(doing, remedy=remedy)


def _fail(message: str, exit_code: int) -> int:
    """Say in one line on stderr why this ends; give back the exit code."""
    with contextlib.suppress(OSError):
        print(f"coldsnap calibrate: {message}", file=sys.stderr, flush=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
