"""Question: what do the weights cost a vLLM start, by load format, from the drive and from the page cache?

Each start is a fresh process of a real vLLM with an empty store of its own kind: first one that loads normally and
captures, then rounds of starts in turns. Before a start the files that it reads are dropped from the page cache or read
into it, and residency proves it. Every start answers the same prompts greedily; tokens that differ end it with exit
code 4.

    python3 bench/engine_loads.py --model=MODEL --formats=auto,coldsnap,fastsafetensors --samples=3 --output=results

vLLM and coldsnap have to be installed, the latter with its plugin. `weights_s` and `loading_s` are the engine's own
figures from its log: reading the weights alone, and building the model, reading and processing together. coldsnap's
`restore_s` stands in its receipt: from the choice of the route to the verdict on every digest.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absl import flags

from coldsnap import _native, calibrate, errors, settings
from coldsnap._bench import cache, ceilings, flagset, machine, results, workspace

_ENGINES = Path(__file__).resolve().parent / "engines"
_CHILD = [str(_ENGINES / name) for name in ("one_start.py", "child.py")]
_PROMPTS = [[11, 22, 33, 44, 55, 66, 77], [101, 3, 5, 8, 13, 21, 34, 55, 89]]
_TOKENS = 16
_STATES = {"cold": (cache.make_cold, cache.is_cold), "warm": (cache.make_warm, cache.is_warm)}
_LIMIT_S = 600
_LOADING = re.compile(r"Model loading took .*?([\d.]+) seconds")  # building, weights and processing
_WEIGHTS = re.compile(r"Loading weights took ([\d.]+) seconds")  # of the engine's own loader and those below it
_OURS = re.compile(r"coldsnap: .*")


@dataclass(frozen=True)
class Request:
    """The flags, checked one by one."""

    model: Path
    formats: list[str]
    states: list[str]
    samples: int
    device: str
    engine: dict[str, Any]
    commit: str | None
    output: Path | None


@dataclass
class Row:
    """One load format in one state of the page cache."""

    load_format: str
    state: str
    starts: list[dict[str, Any]] = field(default_factory=list)
    residency_before: list[float] = field(default_factory=list)
    out: str = ""  # why it can't be measured here


def main(argv: Sequence[str]) -> int:
    """Compare.

    Args:
        argv: The program's name, then the flags.
    Returns:
        0; 2 for a wrong flag; 4 when a start answered with other tokens; 5 when the first start failed.
    """
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("model", None, "a checkpoint's folder, with safetensors files", **common)
    flags.DEFINE_list("formats", ["auto", "coldsnap"], "load formats, commas between them (auto,coldsnap)", **common)
    flags.DEFINE_list("states", ["cold", "warm"], "states of the page cache (cold,warm)", **common)
    flags.DEFINE_string("samples", "3", "starts of each (3)", **common)
    flags.DEFINE_string("device", "auto", "auto (cuda:0 if it is there) or host: of the ceilings", **common)
    flags.DEFINE_string("engine", "{}", "more arguments of vllm.LLM, as JSON", **common)
    flags.DEFINE_string("commit", None, "commit of a measured wheel (of a checkout: git's)", **common)
    flags.DEFINE_string("output", None, "folder for engine_loads.json (none is written)", **common)
    usage = f"{__doc__}\nflags:\n" + "\n".join(f"  --{name}=...  {values[name].help}" for name in values)
    return flagset.run(values, argv, usage, lambda: _compare(_request(values)))


def _request(values: flags.FlagValues) -> Request:
    get: dict[str, Any] = {name: values[name].value for name in values}
    if get["model"] is None:
        raise errors.RequestInvalidError("read --model: there is none", remedy="name a checkpoint's folder")
    unknown = set(get["states"]) - set(_STATES)
    if unknown:
        raise errors.RequestInvalidError(f"read --states: {sorted(unknown)} are unknown", remedy="use cold and warm")
    return Request(
        model=flagset.user_path("model", get["model"]),
        formats=get["formats"],
        states=get["states"],
        samples=flagset.whole_number(values, "samples", 1, 100),
        device=get["device"],
        engine=json.loads(get["engine"]),
        commit=calibrate.commit_of(get["commit"]),
        output=None if get["output"] is None else flagset.user_path("output", get["output"]),
    )


def _compare(request: Request) -> int:
    device, first_line = calibrate.choose_device(request.device)
    print(first_line, flush=True)
    with workspace.working_folder(request.model.parent) as scratch:
        starter = _Starter(request, scratch)
        first = starter.start("coldsnap")
        if "answers" not in first:
            raise errors.IoError(f"start vLLM for the first time: {first['out']}")
        print(*first["lines"], sep="\n", flush=True)
        rows = [Row(load_format, state) for state in request.states for load_format in request.formats]
        found = _bounds(request, device, starter)
        try:
            _sample(request.samples, found, rows, starter)
        except KeyboardInterrupt:
            print("interrupted: what was measured so far follows", file=sys.stderr)
        document = _document(request, device, first, rows, found, starter.payload_bytes)
    _print(rows)
    if request.output is not None:
        print(f"results: {results.write_json(request.output, 'engine_loads.json', document)}")
    return _judge(first, rows)


def _sample(samples: int, found: list[ceilings.Ceiling], rows: list[Row], starter: _Starter) -> None:
    for _ in range(samples):
        for bound in found:
            bound.sample()
        for row in rows:
            if not row.out:
                starter.sample(row)


def _bounds(request: Request, device: str, starter: _Starter) -> list[ceilings.Ceiling]:
    blob = next(each for each in starter.files("coldsnap") if each.name.endswith(".safetensors"))
    cores = settings.default_read_threads(_native.limits())
    ladder = [count for count in ceilings.thread_ladder(cores) if count in (1, 16)]
    found = ceilings.cold_reads(blob, ladder) if "cold" in request.states else []
    return found + ([] if device == "host" else ceilings.pinned_copies(device, starter.payload_bytes))


class _Starter:
    """Starts engines one after the other, all with the same folders."""

    def __init__(self, request: Request, scratch: Path) -> None:
        self._request, self._scratch = request, scratch
        self._store, self._receipts = scratch / "store", scratch / "receipts"
        self._environment = {
            **os.environ,
            "COLDSNAP_STORE": str(self._store),
            "COLDSNAP_STATE_DIR": str(scratch / "state"),
            "COLDSNAP_RECEIPT_DIR": str(self._receipts),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }

    @property
    def payload_bytes(self) -> int:
        """Bytes of the weights, by the receipt of the capture."""
        return int(self._receipt("capture")["payload_bytes"])

    def files(self, load_format: str) -> list[Path]:
        """What a start reads its weights from."""
        if load_format == "coldsnap":
            return [path for path in self._store.rglob("*") if path.is_file() and "shard-" in str(path.parent.name)]
        return sorted(self._request.model.glob("*.safetensors"))

    def sample(self, row: Row) -> None:
        """One start, with the page cache as the row says."""
        make, proves = _STATES[row.state]
        before = [make(path) for path in self.files(row.load_format)]
        found = self.start(row.load_format)
        if "answers" not in found:
            row.out = found["out"]
            return
        row.residency_before.append(sum(before) / len(before))
        if not all(map(proves, before)):
            row.out = f"{row.state} could not be proved: {before}"
        row.starts.append(found)

    def start(self, load_format: str) -> dict[str, Any]:
        """One engine; what it told, or ``out`` with why it failed."""
        engine = {
            "model": str(self._request.model),
            "load_format": load_format,
            "enforce_eager": True,
            "max_model_len": 512,
            **self._request.engine,
        }
        # A command line of its own for each load format, the same each time: coldsnap reads ahead by it.
        asked, told = (self._scratch / f"{load_format}-{name}.json" for name in ("request", "answer"))
        asked.write_text(json.dumps({"engine": engine, "prompts": _PROMPTS, "tokens": _TOKENS}), encoding="utf-8")
        told.unlink(missing_ok=True)
        print(f"start {load_format}", flush=True)
        try:
            done = subprocess.run(
                [sys.executable, *_CHILD, str(asked), str(told)],
                env=self._environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"out": f"it took more than {_LIMIT_S} s"}
        out, err = map(self._without_folders, (done.stdout, done.stderr))
        if not told.exists():
            text = (err or out).strip().splitlines()
            return {"out": f"exit code {done.returncode}: " + " | ".join(text[-3:])[:600]}
        found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
        receipt = self._receipt("hydrate") if load_format == "coldsnap" else {}
        log = out + err
        return found | {
            "loading_s": _last(_LOADING, log),
            "weights_s": _last(_WEIGHTS, log),
            "lines": _OURS.findall(log),
            "restore_s": receipt.get("wall_s"),
            "routes": receipt.get("routes"),
        }

    def _without_folders(self, log: str) -> str:
        """What may be kept of a log: where things lie on the machine is nobody's business."""
        return log.replace(str(self._scratch), "WORK").replace(str(self._request.model), "MODEL")

    def _receipt(self, operation: str) -> dict[str, Any]:
        """The newest one of an operation; {} where there is none."""
        for path in sorted(self._receipts.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            receipt: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if receipt["operation"] == operation:
                return receipt
        return {}


def _last(pattern: re.Pattern[str], log: str) -> float | None:
    found = pattern.findall(log)
    return float(found[-1]) if found else None


def _document(
    request: Request,
    device: str,
    first: dict[str, Any],
    rows: list[Row],
    found: list[ceilings.Ceiling],
    payload_bytes: int,
) -> dict[str, Any]:
    record = machine.machine_record(device, request.model)
    record["versions"]["vllm"] = first["version"]
    commit = request.commit or machine.commit_or_version()
    document = results.results_of(commit, record, 0, payload_bytes, found, [])
    document["checkpoint_bytes"] = sum(path.stat().st_size for path in request.model.glob("*.safetensors"))
    document["capture_start"] = {name: first[name] for name in ("engine_s", "loading_s", "weights_s", "lines")}
    document["cases"] = [
        {
            "load_format": row.load_format,
            "cache": row.state,
            **{name: [start.get(name) for start in row.starts] for name in _FIGURES},
            "routes": row.starts[-1]["routes"] if row.starts else None,
            "lines": [start["lines"] for start in row.starts],
            "residency_before": row.residency_before,
            "out": row.out or None,
        }
        for row in rows
    ]
    return document


_FIGURES = ("engine_s", "loading_s", "weights_s", "restore_s")


def _medians(row: Row) -> Iterator[str]:
    for name in _FIGURES:
        samples = [start[name] for start in row.starts if start.get(name) is not None]
        yield f"{statistics.median(samples):8.2f}" if samples else "       -"


def _print(rows: list[Row]) -> None:
    print(f"\n{'load format':<18} {'cache':<5} {'start':>8} {'loading':>8} {'weights':>8} {'restore':>8}  (medians, s)")
    for row in rows:
        print(f"{row.load_format:<18} {row.state:<5} {' '.join(_medians(row))}  {row.out}")


def _judge(first: dict[str, Any], rows: list[Row]) -> int:
    """4 when any start answered otherwise than the first, which loaded normally."""
    expected = [answer["ids"] for answer in first["answers"]]
    starts = [(row, [answer["ids"] for answer in start["answers"]]) for row in rows for start in row.starts]
    wrong = [(row, ids) for row, ids in starts if ids != expected]
    for row, ids in wrong:
        print(f"OTHER TOKENS: {row.load_format} {row.state}: {ids}", file=sys.stderr)
    if not wrong:
        print(f"{len(starts)} starts answered with the same {_TOKENS} tokens to {len(_PROMPTS)} prompts as the first")
    return 4 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
