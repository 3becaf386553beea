"""Question: is an engine that serves on a GPU captured as it was loaded, and does sleep mode get its memory meanwhile?

    python3 tests/engines/gpu/live.py --model MODEL --output live.json

A plain program for a machine with a GPU, vLLM and the wheel. Three servers follow each other, all answering the same
prompts: one that is put to sleep during its capture and is captured over its control socket once it is awake; one that is
captured behind its readiness; one that is restored, sleeps at level 2, and comes back by the hydrator. The document has
each step with its seconds and what came of it.

Ends with 0 if all went as it should, 4 if an answer differs, 5 if a step failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from coldsnap import control, errors
from tests.engines.harness import PROMPTS, Server, free_port, running

_EXTENSION = "coldsnap.adapters.vllm.worker.WorkerExtension"
_LINE_S = 120  # for a line of the log
_LOOK_S = 0.05


class Unexpected(Exception):
    """A step did not go as it should."""


class Log:
    """The steps of all servers, each printed and kept when it ends."""

    def __init__(self, output: pathlib.Path) -> None:
        self._output, self.steps = output, list[dict[str, Any]]()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """One step; what it finds out goes into the dictionary."""
        found: dict[str, Any] = {"step": name}
        begin = time.monotonic()
        try:
            yield found
        except BaseException as failure:
            found["error"] = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            found["seconds"] = time.monotonic() - begin
            self.steps.append(found)
            print(json.dumps(found), flush=True)
            self._output.write_text(json.dumps(self.steps, indent=1), encoding="utf-8")


def main() -> int:
    """Run the three, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a checkpoint's folder")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the document, JSON")
    parser.add_argument("--rate", default="1GiB", help="capture_rate; a capture has to outlast a request to sleep")
    parser.add_argument("--engine", default="{}", help="more options of the server, as JSON")
    asked = parser.parse_args()
    log = Log(asked.output)
    with tempfile.TemporaryDirectory(dir=asked.model.resolve().parent) as scratch:
        place = _Place(asked.model, pathlib.Path(scratch), asked.rate, json.loads(asked.engine), log)
        try:
            expected = _asleep_and_asked(place)
            others = [_behind_readiness(place), _restored(place)]
        except (Unexpected, errors.Error, OSError) as failure:
            print(f"failed: {type(failure).__name__}: {failure}", file=sys.stderr)
            return 5
    wrong = [each for each in [*expected[1:], *(one for other in others for one in other)] if each != expected[0]]
    print(f"{len(expected) + sum(map(len, others))} rounds of answers, of which differ: {len(wrong)}")
    return 4 if wrong else 0


class _Place:
    """What the servers share: a store for each way to be captured, a state folder, a control socket."""

    def __init__(self, model: pathlib.Path, scratch: pathlib.Path, rate: str, engine: dict[str, Any], log: Log) -> None:
        self._model, self._scratch, self._rate, self._engine, self.log = model, scratch, rate, engine, log
        self.stores = {name: scratch / name for name in ("ready", "asked")}
        self.control = str(scratch / "control" / "socket")
        self._count = 0

    @contextlib.contextmanager
    def serving(self, name: str, store: pathlib.Path) -> Iterator[Server]:
        self._count += 1
        folder = self._scratch / f"server-{self._count}"
        folder.mkdir()
        port = free_port()
        ours = {"store": str(store), "when": "ready", "capture_rate": self._rate, "control": self.control}
        options: dict[str, Any] = {
            "model": str(self._model),
            "host": "127.0.0.1",
            "port": port,
            "load_format": "coldsnap",
            "model_loader_extra_config": {"coldsnap": ours},
            "enable_sleep_mode": True,
            "worker_extension_cls": _EXTENSION,
            "no_enable_prefix_caching": True,
            "enforce_eager": True,
            "max_model_len": 512,
            **self._engine,
        }
        server = Server(port, str(self._model), folder)
        with running(_command(options), self._environment(), folder / "log") as process:
            with self.log.step(f"{name}: ready") as found:
                found["statuses"] = server.await_ready(process)
                if found["statuses"][-1:] != [200]:
                    raise Unexpected(f"{name} never was ready: {server.log[-4000:]}")
            yield server
            with self.log.step(f"{name}: its log") as found:
                found["lines"] = [line for line in server.log.splitlines() if "coldsnap: " in line]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "COLDSNAP_STATE_DIR": str(self._scratch / "state"),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # for the endpoints of sleep mode
        }

    def artifacts(self, name: str) -> list[str]:
        """Names of the artifacts in a store."""
        return sorted(path.parent.name for path in self.stores[name].rglob("artifact.json"))


def _command(options: dict[str, Any]) -> list[str]:
    command = ["-m", "vllm.entrypoints.openai.api_server"]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            command.append(option)
        elif value is not False:
            command += [option, json.dumps(value) if isinstance(value, dict) else str(value)]
    return command


def _asleep_and_asked(place: _Place) -> list[Any]:
    """Put to sleep during its capture; refused while it sleeps; captured over the socket once it is awake."""
    log = place.log
    with place.serving("asleep", place.stores["ready"]) as server:
        with log.step("asleep: a capture is under way") as found:
            found["status"] = _status_when(place, lambda status: status["capture"] == "running")
        with log.step("asleep: sleep of level 1"):
            _post(server, "/sleep?level=1")
        with log.step("asleep: the capture ended") as found:
            found["line"] = _line(server, "it was put to sleep meanwhile")
            _require(not place.artifacts("ready"), "an artifact is there")
        with log.step("asleep: asked while it sleeps") as found:
            found["refused"] = _refused(place, str(place.stores["asked"]))
        with log.step("asleep: wake up"):
            _post(server, "/wake_up")
        answers = [_answers(log, server, "asleep")]
        with log.step("asleep: asked while it is awake") as found:
            report, receipt = control.ask(place.control, {"operation": "capture", "store": str(place.stores["asked"])})
            assert report is not None and receipt is not None
            found |= {"report": report, "payload_bytes": receipt.payload_bytes}
            _require(place.artifacts("asked") == [receipt.artifact_root], "the artifact is not there")
        return [*answers, _answers(log, server, "asleep")]


def _behind_readiness(place: _Place) -> list[Any]:
    """Captured behind its readiness, while it answers; the artifact is that of the other capture."""
    log = place.log
    with place.serving("ready", place.stores["ready"]) as server:
        during = _answers(log, server, "ready")
        with log.step("ready: captured") as found:
            found["line"] = _line(server, "coldsnap: captured ")
            found["artifacts"] = [place.artifacts(name) for name in ("ready", "asked")]
            _require(found["artifacts"][0] == found["artifacts"][1] != [], "the two captures differ")
        return [during, _answers(log, server, "ready")]


def _restored(place: _Place) -> list[Any]:
    """Restored, then asleep at level 2, then filled by the hydrator."""
    log = place.log
    with place.serving("restored", place.stores["asked"]) as server:
        with log.step("restored: status") as found:
            found["status"] = _status_when(place, lambda status: status["start"] == "restored")
            found["line"] = _line(server, "is qualified")
        before = _answers(log, server, "restored")
        for name, path in (("sleep of level 2", "/sleep?level=2"), ("wake its weights", "/wake_up?tags=weights")):
            with log.step(f"restored: {name}"):
                _post(server, path)
        for method in ("coldsnap_hydrate", "coldsnap_verify"):
            with log.step(f"restored: {method}") as found:
                found["answer"] = _post(server, "/collective_rpc", {"method": method})
        with log.step("restored: wake its cache"):
            _post(server, "/wake_up?tags=kv_cache")
        return [before, _answers(log, server, "restored")]


def _answers(log: Log, server: Server, name: str) -> Any:
    with log.step(f"{name}: answers") as found:
        found["answers"] = [server.complete(prompt) for prompt in PROMPTS]
        return found["answers"]


def _status_when(place: _Place, as_it_should: Any) -> dict[str, Any]:
    until = time.monotonic() + _LINE_S
    status: dict[str, Any] | None = None
    while time.monotonic() < until:
        status, _ = control.ask(place.control, {"operation": "status"})
        if status is not None and as_it_should(status):
            return status
        time.sleep(_LOOK_S)
    raise Unexpected(f"the status never was what it should be: {status}")


def _refused(place: _Place, store: str) -> str:
    try:
        control.ask(place.control, {"operation": "capture", "store": store})
    except errors.PolicyRefusedError as refusal:
        return str(refusal)
    raise Unexpected("it was captured")


def _line(server: Server, part: str) -> str:
    until = time.monotonic() + _LINE_S
    while time.monotonic() < until:
        for line in server.log.splitlines():
            if part in line:
                return line
        time.sleep(_LOOK_S)
    raise Unexpected(f"no line with {part!r}: {server.log[-4000:]}")


def _post(server: Server, path: str, document: dict[str, Any] | None = None) -> Any:
    data = b"" if document is None else json.dumps(document).encode()
    request = urllib.request.Request(server.url(path), data, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=120) as response:
        text = response.read()
    return json.loads(text) if text else None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unexpected(otherwise)


if __name__ == "__main__":
    sys.exit(main())
