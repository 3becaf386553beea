"""Question: how fast does each loader bring the same file into the same memory, cold and warm?

All read one safetensors file: the blob of a coldsnap artifact. Each runs in a process of its own, one load at a time,
in rounds with the others and with the raw reads that bound them. Before a sample the file is dropped from the page
cache or read into it, and residency proves it; after it every byte is compared. A loader's first load is not a sample.

A wrong byte ends in exit code 4. A loader that can't run here has a line with its reason.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Started as a plain file, Python looks for modules in bench/ and not in the folder above it.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from absl import flags

from bench.loaders import integrity, measure, source, table
from bench.loaders.process import Process
from coldsnap import _native, calibrate, errors, settings
from coldsnap._bench import ceilings, flagset, machine, results, rounds, workspace

LOADERS = (
    "bench.loaders.ours:Coldsnap",
    "bench.loaders.ours:ColdsnapCrc32",
    "bench.loaders.safetensors:Safetensors",
    "bench.loaders.fastsafetensors:Fastsafetensors",
    "bench.loaders.instanttensor:InstantTensor",
    "bench.loaders.instanttensor:InstantTensorBuffered",
    "bench.loaders.runai:RunaiStreamer",
    "bench.loaders.kvikio:KvikIO",
)
_EXAMPLES = """\
examples:
  bazel run //bench:peers -- --bytes=256MiB --path=. --output=results
  bazel run //bench:peers -- --path=model.safetensors --device=cuda:0
  python3 bench/peers.py --device=cuda:0 --bytes=4GiB --commit=$(cat commit.txt)
"""
_RAW_THREADS = (1, 4, 16)  # of the raw reads: all counts of a calibration would read a large file ten times a round


@dataclass(frozen=True)
class Request:
    """The flags, checked one by one; `loaders` has ``module:class`` of each, `named` whether --loaders chose them."""

    nbytes: int
    path: Path | None
    device: str
    loaders: list[str]
    named: bool
    samples: int
    seed: int
    limit_s: int
    commit: str | None
    output: Path | None


def main(argv: Sequence[str], loaders: Sequence[str] = LOADERS) -> int:
    """Compare.

    Args:
        argv: The program's name, then the flags.
        loaders: ``module:class`` of those that --loaders can name.
    Returns:
        0; 2 for a wrong flag; 3 if no loader could run, or not one that --loaders names; 4 for a wrong byte; 130 or 143
        after a signal. Failures are one sentence on stderr.
    """
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("bytes", "512MiB", "payload of a random blob (512MiB)", **common)
    flags.DEFINE_string("path", None, "folder for a random blob, or a safetensors file (your cache folder)", **common)
    flags.DEFINE_string("device", "auto", "auto (cuda:0 if it is there), host or cuda:N", **common)
    flags.DEFINE_list("loaders", None, "names, commas between them (all that can run here)", **common)
    flags.DEFINE_string("samples", "5", "samples of each number (5)", **common)
    flags.DEFINE_string("seed", "0", "seed of the random bytes (0)", **common)
    flags.DEFINE_string("limit_s", "300", "seconds for one load, before its process is ended (300)", **common)
    flags.DEFINE_string("commit", None, "commit of a measured wheel (of a checkout: git's)", **common)
    flags.DEFINE_string("output", None, "folder for peers.json (none is written)", **common)
    usage = f"{__doc__}\n{_EXAMPLES}\nflags:\n" + "\n".join(f"  --{name}=...  {values[name].help}" for name in values)
    with workspace.signals_raise():
        try:
            return flagset.run(values, argv, usage, lambda: _compare(_request(values, loaders)))
        except workspace.Interrupted as error:
            workspace.remove_folders()
            print(f"peers: {error}; the blob is removed, no results were written", file=sys.stderr)
            return workspace.leave(error.exit_code)


def _request(values: flags.FlagValues, loaders: Sequence[str]) -> Request:
    get: dict[str, Any] = {name: values[name].value for name in values}
    known = {_made(spec).name: spec for spec in loaders}
    names: list[str] = get["loaders"] or list(known)
    for name in names:
        if name not in known:
            raise errors.RequestInvalidError(
                f"read --loaders: {name!r} is not known", remedy=f"known are {', '.join(known)}"
            )
    return Request(
        nbytes=settings.parse_size(get["bytes"], "--bytes"),
        path=None if get["path"] is None else flagset.user_path("path", get["path"]),
        device=get["device"],
        loaders=[known[name] for name in names],
        named=get["loaders"] is not None,
        samples=flagset.whole_number(values, "samples", 1, 1000),
        seed=flagset.whole_number(values, "seed", 0, (1 << 53) - 1),
        limit_s=flagset.whole_number(values, "limit_s", 1, 86400),
        commit=calibrate.commit_of(get["commit"]),
        output=None if get["output"] is None else flagset.user_path("output", get["output"]),
    )


def _compare(request: Request) -> int:
    """Run the whole comparison; its results are written before a wrong byte or a missing loader ends it."""
    device, first_line = calibrate.choose_device(request.device)
    print(first_line, flush=True)
    with contextlib.ExitStack() as stack:
        file = source.prepare(request.path, request.nbytes, request.seed, stack)
        print(f"file: {file.content}; {file.tensors} tensors, {file.payload_bytes} bytes", flush=True)
        calibrate.require_device_memory(device, file.payload_bytes)
        record = machine.machine_record(device, file.blob.parent)
        contestants = _started(request, device, file, stack)
        table.print_loaders(contestants)
        found, rows = _measured(contestants, file, device, request.samples)

    record["versions"]["torch"] = next((each.torch for each in contestants if each.torch), None)
    commit = request.commit or machine.commit_or_version()
    document = results.results_of(commit, record, request.seed, file.payload_bytes, found, [])
    document["content"] = file.content
    document["loaders"] = measure.loaders_of(contestants)
    document["cases"] = measure.cases_of(rows, file.payload_bytes, found)
    table.print_cases(document)
    if request.output is not None:
        print(f"results: {results.write_json(request.output, 'peers.json', document)}")
    _judge(contestants, request.named)
    return 0


def _started(
    request: Request, device: str, file: source.Source, stack: contextlib.ExitStack
) -> list[measure.Contestant]:
    """Start all loaders. They import torch at the same time, and do one by one what is measured."""
    contestants = [
        measure.Contestant(_made(spec), stack.enter_context(Process(spec, file.scratch)), file, request.limit_s)
        for spec in request.loaders
    ]
    digests = file.scratch / "digests.json"
    digests.write_text(json.dumps(integrity.digests_of(file.blob)), encoding="utf-8")
    for each in contestants:
        each.open("cpu" if device == "host" else device, digests)
    for each in contestants:
        each.start()
    for each in contestants:
        each.first_load()
    return contestants


def _measured(
    contestants: list[measure.Contestant], file: source.Source, device: str, samples: int
) -> tuple[list[ceilings.Ceiling], list[measure.Row]]:
    """Take all samples: the cold ones of everything in the same rounds, then the warm ones."""
    cores = settings.default_read_threads(_native.limits())
    ladder = [count for count in ceilings.thread_ladder(cores) if count in _RAW_THREADS]
    link = [] if device == "host" else ceilings.pinned_copies(device, file.payload_bytes)
    bounds = {
        "cold": ceilings.cold_reads(file.blob, ladder),
        "warm": [*ceilings.cached_reads(file.blob, ladder), *link],
    }
    rows = {state: [measure.Row(each, state) for each in contestants if not each.out] for state in bounds}
    steps: dict[str, list[Any]] = {state: [*bounds[state], *rows[state]] for state in bounds}
    with rounds.progress(samples * sum(map(len, steps.values()))) as advance:
        for each in steps.values():
            rounds.run_rounds(each, samples, advance)
    return [*bounds["cold"], *bounds["warm"]], [*rows["cold"], *rows["warm"]]


def _judge(contestants: list[measure.Contestant], named: bool) -> None:
    """Raise if a loader gave a wrong byte, if none was measured, or not one that was asked for by name."""
    for each in contestants:
        if each.wrong:
            raise errors.DataLossError(f"compare what {each.loader.name} loaded with the file: {each.wrong}")
    if all(each.out for each in contestants):
        raise errors.RouteUnavailableError(f"compare {len(contestants)} loaders: none of them could be measured here")
    for each in contestants:
        if each.out and named:
            raise errors.RouteUnavailableError(
                f"measure {each.loader.name}: {each.out}", remedy="leave it out of --loaders"
            )


def _made(spec: str) -> Any:
    """Make the loader that ``module:class`` names: only to ask its name, it is not started here."""
    module, _, kind = spec.partition(":")
    return getattr(importlib.import_module(module), kind)()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
