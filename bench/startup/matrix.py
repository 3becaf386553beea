"""The course of a matrix: what can be measured here, starts that prepare, samples in turns, and the end of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.startup import page, survey, table, tiny_model
from bench.startup.cells import PEERS, Cell, cells_of, in_turns
from bench.startup.ledger import FILE, FORMAT, Ledger
from bench.startup.process import Process
from bench.startup.starts import Order, Starter
from coldsnap import calibrate, errors
from coldsnap._bench import machine, workspace

# Asked when no signal is handled yet: Python tries the folder with a file, which an interrupt would leave there.
_TEMPORARY = Path(tempfile.gettempdir())
_SURVEY_LIMIT_S = 300
_PACKAGES = {"runai_streamer": "runai_model_streamer"}  # of a load format, where it has another name
_TOWERS = ("audio_config", "vision_config", "thinker_config")  # of config.json: what a text model has not
# Settings of the starts that are worth keeping. Paths are left out: they name users and say nothing.
_KEPT = ("COLDSNAP_", "CUDA_", "NCCL_", "OMP_", "TORCH", "VLLM_")


@dataclass(frozen=True)
class Request:
    """What is asked for; `formats` is None where they follow from what is installed."""

    model: Path | None
    cases: list[str]
    formats: list[str] | None
    caches: list[str]
    pages: list[str]
    repeats: int
    requests: int
    tokens: int
    engine: dict[str, Any]
    limit_s: int
    minutes: int | None
    device: str
    work: Path | None
    output: Path | None
    resume: bool
    commit: str | None


@dataclass(frozen=True)
class _Folders:
    """Where a run works: `kept` may outlive it, `scratch` and `temporary` never do."""

    kept: Path
    scratch: Path
    temporary: Path


def measure(request: Request) -> int:
    """Measure a matrix, print it, and write what --output wants.

    Returns:
        The exit code: 0, 3 where nothing could be measured, 4 when a start answered with other tokens.
    Raises:
        IoError: vLLM can't be asked what it is.
        RequestInvalidError: The results of --resume are of another run.
        Interrupted: A signal came; the document is written.
    """
    begun_s = time.monotonic()
    device, first_line = calibrate.choose_device(request.device)
    print(first_line, flush=True)
    with _folders(request) as folders:
        model = request.model or _tiny(folders.kept)
        found = _surveyed(folders.temporary)
        formats = request.formats or ["auto", "coldsnap", *found["peers"]]
        cases, left_out = _applicable(request.cases, model)
        wanted = cells_of(cases, formats, request.caches, request.pages)
        head = _head(request, model, formats, device, found, folders.kept) | {"not_applicable": left_out}
        ledger = Ledger(head, wanted, request.output)
        if request.resume:
            print(f"resume: {ledger.take_up()} starts are there", flush=True)
        order = Order(
            model=model,
            engine=request.engine,
            prompts=prompts_of(request.requests),
            tokens=request.tokens,
            limit_s=request.limit_s,
            text_argument=found["language_model_only"],
            packages=_unpacked_wheel(folders.scratch),
        )
        kept = folders.kept / _digest_of(head)
        starter = Starter(order, kept, folders.scratch, folders.temporary)
        _Run(request, ledger, starter, kept, begun_s).to_its_end(wanted)
    return _tell(ledger, request.output)


def _tiny(folder: Path) -> Path:
    """The tiny model, made once in a folder that is kept."""
    model = folder / "model"
    if not (model / tiny_model.LAST).exists():
        shutil.rmtree(model, ignore_errors=True)
        tiny_model.make(model)
    return model


def _digest_of(head: dict[str, Any]) -> str:
    """Name what artifacts and warm caches hang on, so that other runs in the same --work have others."""
    request = {name: head["request"][name] for name in ("model", "model_bytes", "engine")}
    text = json.dumps([request, head["commit"], head["machine"], head["variables"]])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prompts_of(count: int) -> list[list[int]]:
    """Prompts of 16 tokens that share no beginning, so that no engine finds one in its prefix cache."""
    return [[(31 * number + 7 * place) % 250 + 1 for place in range(16)] for number in range(count)]


class _Over(Exception):
    """The time of --minutes is over."""


class _Run:
    """Starts that prepare, then samples."""

    def __init__(self, request: Request, ledger: Ledger, starter: Starter, kept: Path, begun_s: float) -> None:
        self._request, self._ledger, self._starter = request, ledger, starter
        self._prepared = kept / "prepared"
        self._out: set[tuple[str, str]] = set()  # case and load format
        self._longest_s: dict[str, float] = {}  # by topology
        self._until_s = None if request.minutes is None else begun_s + 60 * request.minutes

    def to_its_end(self, wanted: Sequence[Cell]) -> None:
        """Take all samples; the ledger says how it ended."""
        try:
            missing = [cell for cell in wanted if len(self._ledger.samples(cell)) < self._request.repeats]
            for cell in _one_of_each_format(missing):
                if cell.load_format == "coldsnap" or "warm" in self._request.caches:
                    self._prepare(cell)
            for number, cell in in_turns(wanted, self._request.repeats):
                if (cell.case, cell.load_format) not in self._out and len(self._ledger.samples(cell)) <= number:
                    self._start(cell, prepares=False)
            self._ledger.ended = None
        except _Over:
            self._ledger.ended = f"the {self._request.minutes} minutes of --minutes are over"
        except workspace.Interrupted as error:
            self._ledger.ended = str(error)
            raise
        finally:
            self._ledger.write()

    def _prepare(self, cell: Cell) -> None:
        """Fill the warm caches of a case, and let coldsnap capture and pass probation, once in the folder that is kept."""
        marker = self._prepared / f"{cell.case}.{cell.load_format}"
        if marker.exists():
            return
        record = self._start(cell, prepares=True)
        # The first engine that is restored from an artifact is asked a prompt more than those after it.
        if record["out"] is None and any(line.startswith("coldsnap: captured ") for line in record["lines"]):
            record = self._start(cell, prepares=True)
        if record["out"] is None:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()

    def _start(self, cell: Cell, *, prepares: bool) -> dict[str, Any]:
        workspace.go_on()
        begin = time.monotonic()
        if self._until_s is not None and begin + self._longest_s.get(cell.topology, 0.0) > self._until_s:
            raise _Over
        name = f"{cell.case} {cell.load_format}, to prepare" if prepares else cell.label
        print(f"start {len(self._ledger.starts) + 1}: {name}", end="", flush=True)
        record = self._starter.start(cell, prepares=prepares)
        took_s = time.monotonic() - begin
        self._longest_s[cell.topology] = max(took_s, self._longest_s.get(cell.topology, 0.0))
        self._ledger.add(record)
        if record["out"]:
            self._out.add((cell.case, cell.load_format))
        ready = record["marks"].get("ready", {}).get("s")
        print(f": OUT: {record['out']}" if record["out"] else f": ready after {ready:.2f} s", flush=True)
        return record


def _one_of_each_format(wanted: Sequence[Cell]) -> list[Cell]:
    """A cell for each case and load format, in their order."""
    return list({(cell.case, cell.load_format): cell for cell in reversed(wanted)}.values())[::-1]


@contextlib.contextmanager
def _folders(request: Request) -> Iterator[_Folders]:
    """Make the folders of a run; the temporary one has a short path, as sockets need it."""
    parent = request.work or (request.model.parent if request.model else workspace.default_parent())
    with contextlib.ExitStack() as stack:
        if request.work is not None:
            try:
                parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise errors.from_errno(error, f"make the folder {parent}", remedy="name another --work") from error
        scratch = stack.enter_context(workspace.working_folder(parent))
        temporary = scratch / "t"
        if not parent.samefile(_TEMPORARY):
            temporary = stack.enter_context(workspace.working_folder(_TEMPORARY))
        temporary.mkdir(exist_ok=True)
        yield _Folders(request.work or scratch, scratch, temporary)


def _unpacked_wheel(scratch: Path) -> Path | None:
    """Under Bazel, coldsnap as pip would have installed it: vLLM finds plugins by their package's description alone."""
    wheel = os.environ.get("WHEEL")
    if wheel is None:
        return None
    folder = scratch / "packages"
    with zipfile.ZipFile(Path(os.environ["RUNFILES_ROOT"], wheel)) as archive:
        archive.extractall(folder)
    return folder


def _package(load_format: str) -> str:
    return _PACKAGES.get(load_format, load_format)


def _surveyed(temporary: Path) -> dict[str, Any]:
    """Ask a process of its own what vLLM is here: importing it takes memory and threads that no start should find taken."""
    command = [sys.executable, survey.__file__, *map(_package, PEERS)]
    with Process(command, {**os.environ, "TMPDIR": str(temporary)}) as process:
        ended = process.wait(_SURVEY_LIMIT_S)
    for _, line in process.lines:
        if line.startswith(survey.MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(survey.MARK))
            return found | {"peers": [each for each in PEERS if _package(each) in found["packages"]]}
    late = "" if ended else f"no answer within {_SURVEY_LIMIT_S} s: "
    raise errors.IoError(
        f"ask vLLM what it is, by {sys.executable}: {late}{process.last_words()}",
        remedy="start this with the Python that has vLLM",
    )


def _applicable(cases: Sequence[str], model: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Split cases into those that say something of this model and those that don't, with the reason."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.RequestInvalidError(
            f"read config.json of --model={model}: {error}", remedy="name a checkpoint's folder"
        ) from error
    if any(name in config for name in _TOWERS):
        return list(cases), []
    reason = f"{model.name} has no towers: none of {', '.join(_TOWERS)} in its config.json"
    left_out = [{"case": case, "reason": reason} for case in cases if case.endswith("-text")]
    return [case for case in cases if not case.endswith("-text")], left_out


def _head(
    request: Request, model: Path, formats: Sequence[str], device: str, found: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """What the document says of the run before its first start."""
    record = machine.machine_record(device, folder)
    record["versions"] |= {"vllm": found["vllm"], "torch": found["torch"]}
    return {
        "format": FORMAT,
        "commit": request.commit or machine.commit_or_version(),
        "machine": record,
        "request": {
            "model": model.name,
            "model_bytes": sum(path.stat().st_size for path in model.glob("*.safetensors")),
            "cases": request.cases,
            "formats": list(formats),
            "caches": request.caches,
            "pages": request.pages,
            "repeats": request.repeats,
            "requests": request.requests,
            "tokens": request.tokens,
            "engine": request.engine,
        },
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_KEPT) and "/" not in value
        },
    }


def _tell(ledger: Ledger, output: Path | None) -> int:
    """Print the table, draw the report, and judge."""
    document = ledger.document()
    print("", *table.lines_of(document), sep="\n", flush=True)
    if output is not None:
        path = ledger.write()
        print(f"results: {path}")
        try:
            draw(path, output)
        except errors.RequestInvalidError as error:  # the results are there, and can be drawn elsewhere
            print(f"no report: {error}", file=sys.stderr)
    others = ledger.others()
    for start in others:
        print(
            f"OTHER TOKENS: start {start['number']}, {start['case']} {start['load_format']}: {start['ids']}",
            file=sys.stderr,
        )
    if others:
        return errors.DataLossError.exit_code
    served = [start for start in ledger.starts if start["ids"]]
    if not any(start["kind"] == "sample" for start in served):
        return errors.RouteUnavailableError.exit_code
    print(f"{len(served)} starts answered with the tokens of the first start of their case")
    return 0


def draw(path: Path, output: Path) -> None:
    """Draw the report of results that are there.

    Raises:
        RequestInvalidError: They are none, or nothing here can draw; nothing was written.
        IoError, NoSpaceError: A file can't be written.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        drawn = page.write(document, output)
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, errors.Error):
            raise
        raise errors.RequestInvalidError(
            f"draw {path}: {type(error).__name__}: {error}", remedy=f"give a {FILE} of this program"
        ) from error
    print(f"report: {drawn[0]}" if drawn else "no report: there is not one sample")
