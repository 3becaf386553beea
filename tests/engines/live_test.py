"""Captures of an engine that serves: behind its readiness, and when its control socket is asked."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import urllib.request

import pytest

from coldsnap import control, errors
from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, here, require, strategies
from tests.engines.harness import PROMPTS, Place, Server, Start, receipts_in

_LIMIT_S = 60


def live(start: Start, store: pathlib.Path, **ours: str) -> Start:
    """The start by coldsnap, with more of its own extra configuration."""
    found = by_coldsnap(start, store)
    return dataclasses.replace(found, extra={"coldsnap": {**found.extra["coldsnap"], **ours}})


def await_line(server: Server, part: str) -> str:
    """The line of the log that contains ``part``, once it is there."""
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        found = [line for line in server.log.splitlines() if part in line]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"no line with {part!r}\n{server.log[-4000:]}")


def called(server: Server, method: str) -> None:
    """Call a method of the server's workers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/collective_rpc",
        json.dumps({"method": method}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


@pytest.mark.parametrize("ranks", [1, 2])
def test_ready_is_captured_behind_the_first_answers_and_restored(tmp_path: pathlib.Path, ranks: int) -> None:
    model = models.make("dense", tmp_path / "model")
    # The weights are 5 MiB, and read twice: ten seconds.
    start = live(Start(model, ranks=ranks), tmp_path / "store", when="ready", capture_rate="1MiB")
    place = Place(tmp_path)
    with place.serving(start) as server:
        outputs = [server.complete(prompt) for prompt in PROMPTS]
        await_line(server, "the weights will be captured once the engine is ready")
        assert not [line for line in server.log.splitlines() if "coldsnap: captured " in line]
        await_line(server, "coldsnap: captured ")
        assert [server.complete(prompt) for prompt in PROMPTS] == outputs
    (artifact,) = artifacts(tmp_path / "store")
    assert strategies(artifact) == [here("meta")] * ranks
    assert receipts_in(server.folder)[0]["settings"]["backend"]["value"] == "python"

    (restored,) = place.start(dataclasses.replace(start, processes=True))
    assert restored.outputs == outputs
    require(restored, restored, "restored", ranks)
    # The engine that was captured had been asked, so the restored one was.
    assert restored.lines("is qualified"), restored.log[-4000:]


def test_asked_over_the_socket(tmp_path: pathlib.Path) -> None:
    store, path = tmp_path / "store", str(tmp_path / "control" / "socket")
    start = live(Start(models.make("dense", tmp_path / "model")), store, when="asked", control=path)
    place = Place(tmp_path)
    with place.serving(start) as server:
        outputs = [server.complete(prompt) for prompt in PROMPTS]
        status, _ = control.ask(path, {"operation": "status"})
        assert status is not None
        assert (status["start"], status["capture"], status["weights"]) == ("loaded", "planned", "unchanged")
        assert not artifacts(store)
        report, receipt = control.ask(path, {"operation": "capture", "store": None})
        assert report is not None and receipt is not None
        (artifact,) = artifacts(store)
        assert (report["path"], receipt.artifact_root) == (str(artifact), artifact.name)
        with pytest.raises(errors.ExistsError, match=artifact.name):
            control.ask(path, {"operation": "capture", "store": str(tmp_path / "another")})
        assert [server.complete(prompt) for prompt in PROMPTS] == outputs

    with place.serving(start) as server:
        assert [server.complete(prompt) for prompt in PROMPTS] == outputs
        status, _ = control.ask(path, {"operation": "status"})
        assert status is not None
        assert (status["start"], status["artifact_root"]) == ("restored", artifact.name)
        await_line(server, "is qualified")
        with pytest.raises(errors.ExistsError, match=artifact.name):
            control.ask(path, {"operation": "capture", "store": None})


def test_weights_that_were_updated_are_not_captured(tmp_path: pathlib.Path) -> None:
    store, path = tmp_path / "store", str(tmp_path / "control" / "socket")
    start = live(Start(models.make("dense", tmp_path / "model")), store, when="asked", control=path)
    start = dataclasses.replace(
        start,
        environment={**start.environment, "VLLM_SERVER_DEV_MODE": "1"},
        engine={"worker_extension_cls": "tests.engines.touch.Touch"},
    )
    with Place(tmp_path).serving(start) as server:
        before = [server.complete(prompt) for prompt in PROMPTS]
        called(server, "touch")
        assert [server.complete(prompt) for prompt in PROMPTS] != before  # the fault is there
        with pytest.raises(errors.PolicyRefusedError, match=r"1 of .* storages have changed"):
            control.ask(path, {"operation": "capture", "store": None})
        status, _ = control.ask(path, {"operation": "status"})
        assert status is not None and status["weights"] == "changed"
        await_line(server, "coldsnap: not captured: ")
    assert not artifacts(store)


def test_weights_that_end_in_native_code_are_captured_while_they_load(tmp_path: pathlib.Path) -> None:
    start = live(Start(models.make("dense", tmp_path / "model"), plain=False), tmp_path / "store", when="ready")
    place = Place(tmp_path)
    (captured,) = place.start(start)
    (line,) = captured.lines("coldsnap: captured ")
    assert "at the end of loading, since the finished weights can't be captured" in line
    (artifact,) = artifacts(tmp_path / "store")
    assert strategies(artifact) == ["loaded"]
