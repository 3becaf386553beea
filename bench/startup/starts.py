"""One start of the engine as a cell says, from a proved page cache and counted cache folders, to a record of it.

All starts share a folder: for each towers' case a store of coldsnap's, for each case the warm cache folders. A start
with cold caches has folders of its own, which go when it has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.startup import caches, client, phases
from bench.startup.cells import Cell
from bench.startup.process import Process
from coldsnap._bench import cache, workspace

_BENCH = Path(__file__).resolve().parents[1]
_CHILD = [str(_BENCH / name) for name in ("engines/one_start.py", "startup/child.py")]
_PAGES = {"cold": (cache.make_cold, cache.is_cold), "warm": (cache.make_warm, cache.is_warm)}
_NO_TOWERS = {"image": 0, "video": 0, "audio": 0}
_SERVER = "vllm.entrypoints.openai.api_server"
# What chooses an artifact, or says otherwise than a cell where one lies.
_NOT_INHERITED = ("COLDSNAP_ARTIFACT", "COLDSNAP_MODE", "VLLM_DISABLE_LOG_LOGO")
_STEP_S = 0.1  # between two looks at whether a start has come to its end


@dataclass(frozen=True)
class Order:
    """What every start is given.

    Attributes:
        model: Folder of the checkpoint.
        engine: Arguments of ``vllm.LLM``, which are options of the server too.
        prompts: Token ids; the first is the first request of each engine.
        tokens: How many an answer has.
        limit_s: Seconds of one start, to its last answer.
        text_argument: Whether the engine has ``language_model_only``; else every modality's limit is set to 0.
        packages: Folder that goes before PYTHONPATH; None where coldsnap is installed.
    """

    model: Path
    engine: dict[str, Any]
    prompts: list[list[int]]
    tokens: int
    limit_s: float
    text_argument: bool
    packages: Path | None

    def arguments(self, cell: Cell) -> dict[str, Any]:
        """Of the engine in one cell."""
        found = {"model": str(self.model), "load_format": cell.load_format, **self.engine}
        if cell.towers == "text":
            found |= {"language_model_only": True} if self.text_argument else {"limit_mm_per_prompt": _NO_TOWERS}
        return found


class Starter:
    """Starts engines one after the other.

    Args:
        order: What all have in common.
        folder: For stores and warm caches; starts that share it find what those before them left.
        scratch: For what goes with this run.
        temporary: TMPDIR of the engines, which make sockets there: their paths have a hundred characters at most.
    """

    def __init__(self, order: Order, folder: Path, scratch: Path, temporary: Path) -> None:
        self._order, self._folder, self._scratch, self._temporary = order, folder, scratch, temporary
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, cell: Cell, *, prepares: bool = False) -> dict[str, Any]:
        """Run one start.

        Args:
            cell: What to start, and from which caches.
            prepares: Not a sample: the page cache is left as it is, and the caches are the warm ones, to be filled.
        Returns:
            The record; ``out`` says why it is no sample, and is None where it is one.
        """
        root = self._folder / "caches" / cell.case
        if not prepares and cell.caches == "cold":
            root = self._scratch / "cold-caches"
        variables = caches.bind(root)
        resident = [] if prepares else self._bring_pages(cell)
        before = caches.count(root)
        found = self._serve(cell, variables) if cell.topology == "serve" else self._construct(cell, variables)
        record: dict[str, Any] = {
            "kind": "prepare" if prepares else "sample",
            "case": cell.case,
            "load_format": cell.load_format,
            "caches": None if prepares else cell.caches,
            "pages": None if prepares else cell.pages,
            **found,
            "residency_before": resident,
            "caches_before": before,
            "caches_after": caches.count(root),
        }
        record["lines"] = list(map(self._nameless, found["lines"]))
        out = found["out"] or _out(record)
        record["out"] = None if out is None else self._nameless(out)
        if root == self._scratch / "cold-caches":
            shutil.rmtree(root)
        return record

    def _nameless(self, text: str) -> str:
        """A text of the engine's without the paths of this run, which name users and say nothing."""
        words = {self._folder: "WORK", self._scratch: "SCRATCH", self._temporary: "TMP", self._order.model: "MODEL"}
        for path in sorted(words, key=lambda path: -len(str(path))):  # one may lie in another
            text = text.replace(str(path), words[path])
        return text

    def _bring_pages(self, cell: Cell) -> list[float]:
        """Bring checkpoint and artifact into the cell's state; the fraction of each file that is resident then."""
        store = self._store(cell)
        blobs = [path for path in store.rglob("*") if path.is_file() and path.parent.name.startswith("shard-")]
        files = sorted([*self._order.model.glob("*.safetensors"), *blobs])
        return [round(_PAGES[cell.pages][0](path), 4) for path in files]

    def _store(self, cell: Cell) -> Path:
        return self._folder / f"store-{cell.towers}"

    def _environment(self, cell: Cell, variables: dict[str, str]) -> dict[str, str]:
        packages = [str(self._order.packages)] if self._order.packages else []
        paths = [*packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        return environment | {
            **variables,
            "COLDSNAP_RECEIPT_DIR": str(self._scratch / "receipts"),
            "COLDSNAP_STATE_DIR": str(self._folder / "state"),
            "COLDSNAP_STORE": str(self._store(cell)),
            "HF_HUB_OFFLINE": "1",
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self._temporary),
            "VLLM_CONFIGURE_LOGGING": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if cell.topology == "inproc" else "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def _port(self) -> int:
        """The same for all servers of this folder, as long as nobody else takes it: it is part of their command line."""
        kept = self._folder / "port"
        port = free_port(int(kept.read_text()) if kept.exists() else 0)
        kept.write_text(str(port))
        return port

    def _construct(self, cell: Cell, variables: dict[str, str]) -> dict[str, Any]:
        """`vllm.LLM` in a process of its own."""
        asked, told = (self._folder / f"{cell.case}-{cell.load_format}-{name}.json" for name in ("order", "answer"))
        order = {"engine": self._order.arguments(cell), "prompts": self._order.prompts, "tokens": self._order.tokens}
        asked.write_text(json.dumps(order), encoding="utf-8")
        told.unlink(missing_ok=True)
        command = [sys.executable, *_CHILD, str(asked), str(told)]
        with Process(command, self._environment(cell, variables)) as process:
            if not _await_end(process, self._order.limit_s):
                return _failed(process, f"it took more than {self._order.limit_s:g} s")
        if not told.exists():
            return _failed(process)
        answer = json.loads(told.read_text(encoding="utf-8"))
        stamps = {
            name: phases.Mark(process.since_spawn(moment_s), "child") for name, moment_s in answer["stamps"].items()
        }
        return _told(process, stamps, answer["ttft_s"], answer["ids"])

    def _serve(self, cell: Cell, variables: dict[str, str]) -> dict[str, Any]:
        """The standard server, until it has answered all prompts."""
        port = self._port()
        options = self._order.arguments(cell) | {"host": "127.0.0.1", "port": port, "served_model_name": client.MODEL}
        command = [sys.executable, "-m", _SERVER, *options_of(options)]
        with Process(command, self._environment(cell, variables)) as process:
            until = process.spawned_s + self._order.limit_s
            healthy_s = client.await_health(port, lambda: _goes_on(process), until)
            if healthy_s is None:
                late = f"it was not ready within {self._order.limit_s:g} s" if process.alive else "it was never ready"
                return _failed(process, late)
            try:
                answers = [
                    client.complete(port, prompt, self._order.tokens, max(1.0, until - time.monotonic()))
                    for prompt in self._order.prompts
                ]
            except OSError as error:
                return _failed(process, str(error))
        stamps = {
            "ready": phases.Mark(process.since_spawn(healthy_s), "health"),
            "first_token": phases.Mark(process.since_spawn(answers[0].first_s), "stream"),
        }
        return _told(process, stamps, [each.first_s - each.asked_s for each in answers], [each.ids for each in answers])


def free_port(wanted: int = 0) -> int:
    """A port of 127.0.0.1 that nobody listens on, the wanted one if it is free; somebody may take it meanwhile, and the
    server then says so.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def options_of(arguments: dict[str, Any]) -> list[str]:
    """Arguments of ``vllm.LLM`` as options of the server."""
    found = []
    for name, value in arguments.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found += [f"--{option}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return found


def _await_end(process: Process, limit_s: float) -> bool:
    """Wait for the process's own end; False where it takes longer than `limit_s` seconds."""
    until = process.spawned_s + limit_s
    while _goes_on(process) and time.monotonic() < until:
        process.wait(_STEP_S)
    return not process.alive


def _goes_on(process: Process) -> bool:
    """Whether there still is something to wait for; a signal whose exception was lost is raised again."""
    workspace.go_on()
    return process.alive


def _told(
    process: Process, stamps: dict[str, phases.Mark], ttft_s: Sequence[float], ids: list[list[int]]
) -> dict[str, Any]:
    marks = phases.marks_of(process.lines, stamps)
    return {
        "marks": {name: {"s": round(mark.s, 4), "source": mark.source} for name, mark in marks.items()},
        "phases": [_rounded(phase) for phase in phases.phases_of(marks)],
        "reported": phases.reported_in(process.lines),
        "ttft_s": [round(each, 5) for each in ttft_s],
        "ids": ids,
        "lines": phases.coldsnap_lines(process.lines),
        "out": None,
    }


def _failed(process: Process, reason: str = "it ended before it answered") -> dict[str, Any]:
    """What there is of a start that did not come to its end; its process is ended, so that the log is whole."""
    process.end()
    return _told(process, {}, [], []) | {"out": f"{reason}: {process.last_words()}"}


def _rounded(phase: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in phase.items()}


def _out(record: dict[str, Any]) -> str | None:
    """Why a start that served is no sample of its cell."""
    ours = record["load_format"] == "coldsnap"
    done = [line for line in record["lines"] if line.startswith(("coldsnap: restored ", "coldsnap: captured "))]
    if record["kind"] == "prepare":
        return None if done or not ours else f"it neither captured nor restored: {_said(record)}"
    if ours and not any(line.startswith("coldsnap: restored ") for line in done):
        return f"it did not restore: {_said(record)}"
    if not all(map(_PAGES[record["pages"]][1], record["residency_before"])):
        return f"the page cache could not be made {record['pages']}: resident {record['residency_before']}"
    if record["caches"] == "cold" and caches.total(record["caches_before"]):
        return f"its cache folders were not empty: {record['caches_before']}"
    return None


def _said(record: dict[str, Any]) -> str:
    return record["lines"][-1] if record["lines"] else "coldsnap said nothing in the log; is its plugin installed?"
