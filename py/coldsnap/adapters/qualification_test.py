"""Qualifying by an engine of a few lines: what is compared with what, and what is written down."""

from __future__ import annotations

import json
import os
import pathlib
import textwrap
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import errors, quarantine
from coldsnap.adapters import oracle, qualification
from coldsnap.adapters.oracle import Oracle
from coldsnap.adapters.qualification import Wanted, qualify

PROMPT = (1, 2, 3)
# It says what `answers` has for its load format, and keeps an account of its starts.
_ENGINE = """
import json, os, pathlib, sys, time

order = json.loads(pathlib.Path(sys.argv[1]).read_text())
arguments = order["arguments"]
by = arguments.get("load_format", "auto")
with open(arguments["model"] + "/starts", "a") as starts:
    starts.write(json.dumps({"arguments": arguments, "control": os.environ.get("COLDSNAP_CONTROL")}) + "\\n")
print("an engine talks a lot")
said = json.loads(pathlib.Path(arguments["model"], "answers").read_text())[by]
time.sleep(said.get("sleep_s", 0))
if "status" in said:
    sys.exit(said["status"])
if by == "coldsnap":
    receipts = pathlib.Path(os.environ["COLDSNAP_RECEIPT_DIR"])
    receipts.mkdir()
    (receipts / "1.json").write_text(json.dumps(said["receipt"]))
pathlib.Path(sys.argv[2]).write_text(json.dumps(said["answer"]))
"""


class World:
    """A package that has the engine, a model and a captured artifact."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = folder / "packages" / "engine_of_tests"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "qualify.py").write_text(textwrap.dedent(_ENGINE))
        monkeypatch.syspath_prepend(str(package.parent))
        monkeypatch.setattr(qualification, "_PROGRAM", "{}.qualify")
        coldsnap.capture({"w": np.arange(9.0)}, folder / "artifact", identity={"model": "example"})
        with coldsnap.open(folder / "artifact") as artifact:
            self.root = artifact.artifact_root
        self.model = folder / "model"
        self.model.mkdir()
        self.artifact = folder / "artifact"
        path = os.pathsep.join((str(package.parent), os.environ.get("PYTHONPATH", "")))
        self.environ = {**os.environ, "PYTHONPATH": path, "COLDSNAP_STATE_DIR": str(folder / "state")}

    def says(self, restored: dict[str, Any], normal: dict[str, Any] | None = None, **more: Any) -> None:
        """What the engine answers, restored and not."""
        receipt = {"operation": "hydrate", "ok": True, "artifact_root": self.root, "error": None}
        answers = {"coldsnap": {"answer": restored, "receipt": receipt, **more}, "auto": {"answer": normal}}
        (self.model / "answers").write_text(json.dumps(answers))

    def qualify(self, **more: Any) -> qualification.Qualified:
        arguments = {"model": str(self.model), "seed": 0, **more.pop("arguments", {})}
        given = {"artifact": str(self.artifact), **more}
        return qualify(Wanted("engine_of_tests", arguments, **given), self.environ)

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.model / "starts").read_text().splitlines()]


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def answer(*tokens: int, logprob: float = -3.25) -> dict[str, Any]:
    return {"prompt": PROMPT, "tokens": tokens, "logprob": logprob}


def test_compared_with_what_the_capturing_engine_said(world: World) -> None:
    oracle.write(world.root, Oracle(PROMPT, (4, 5), -3.25), world.environ)
    world.says(answer(4, 5))
    found = world.qualify()
    assert (found.artifact_root, found.compared_with) == (world.root, "recorded")
    then = oracle.read(world.root, world.environ)
    assert then is not None and then.qualified
    (start,) = world.starts
    assert start["arguments"]["model_loader_extra_config"] == {
        "coldsnap": {"mode": "restore", "artifact": str(world.artifact)}
    }


@pytest.mark.parametrize("recorded", [None, Oracle((9, 9), (4, 5), -3.25)], ids=["nothing", "another prompt"])
def test_compared_with_a_normal_start_where_nothing_fits(world: World, recorded: Oracle | None) -> None:
    if recorded is not None:
        oracle.write(world.root, recorded, world.environ)
    world.says(answer(4, 5), answer(4, 5))
    assert world.qualify().compared_with == "normal start"
    assert [start["arguments"].get("load_format") for start in world.starts] == ["coldsnap", None]
    then = oracle.read(world.root, world.environ)
    assert then is not None and then.qualified


@pytest.mark.parametrize("now", [answer(4, 6), answer(4, 5, logprob=-3.5)], ids=["tokens", "logprob"])
@pytest.mark.parametrize("recorded", [True, False])
def test_another_answer_puts_it_under_quarantine(world: World, recorded: bool, now: dict[str, Any]) -> None:
    if recorded:
        oracle.write(world.root, Oracle(PROMPT, (4, 5), -3.25), world.environ)
    world.says(now, answer(4, 5))
    with pytest.raises(errors.LayoutError, match="the engine that captured it"):
        world.qualify()
    record = quarantine.find(world.root, world.environ)
    assert record is not None and record.operation == "qualify"
    then = oracle.read(world.root, world.environ)
    assert then is not None and not then.qualified
    count = len(world.starts)
    with pytest.raises(errors.QuarantinedError, match=world.root):
        world.qualify()
    assert len(world.starts) == count


def test_what_the_engine_s_coldsnap_raised_is_raised(world: World) -> None:
    error = {"code": "data_loss", "message": "piece 3 is not what was captured", "stage": "digest", "remedy": "copy it"}
    world.says({"error": error})
    with pytest.raises(errors.DataLossError, match="piece 3 is not what was captured") as failure:
        world.qualify()
    assert (failure.value.exit_code, failure.value.remedy) == (4, "copy it")


def test_what_another_process_of_the_engine_raised_is_known_by_its_receipt(world: World) -> None:
    error = {"code": "data_loss", "message": "piece 3 is not what was captured", "stage": "digest", "remedy": "copy it"}
    failed = {"operation": "hydrate", "ok": False, "artifact_root": world.root, "error": error}
    other = {"code": "internal", "message": "RuntimeError: see above", "stage": "", "remedy": ""}
    world.says({"error": other}, receipt=failed)
    with pytest.raises(errors.DataLossError, match="piece 3"):
        world.qualify()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"status": 3}, "ended with status 3"),
        ({"answer": {"error": {"code": "internal", "message": "no memory"}}}, "no memory"),
    ],
)
def test_an_engine_that_does_not_start_says_so(world: World, more: dict[str, Any], words: str) -> None:
    world.says({}, **more)
    with pytest.raises(errors.IoError, match=words):
        world.qualify()
    assert quarantine.find(world.root, world.environ) is None


def test_an_engine_that_says_nothing_is_ended(world: World) -> None:
    world.says(answer(4, 5), sleep_s=600)
    with pytest.raises(errors.TimedOutError, match="within 1 s"):
        world.qualify(timeout_s=1)


def test_a_socket_of_an_engine_that_serves_is_left_alone(world: World) -> None:
    world.environ["COLDSNAP_CONTROL"] = "/run/serving"
    world.says(answer(4, 5), answer(4, 5))
    ours = {"identity": "content", "control": "/run/serving", "when": "asked"}
    world.qualify(
        arguments={"model_loader_extra_config": {"coldsnap": ours, "threads": 2}}, artifact=None, store="/a/store"
    )
    first, second = world.starts
    assert (first["control"], second["control"]) == (None, None)
    assert first["arguments"]["model_loader_extra_config"] == {
        "coldsnap": {"identity": "content", "mode": "restore", "store": "/a/store"},
        "threads": 2,
    }


@pytest.mark.parametrize(
    ("engine", "arguments", "kind", "words"),
    [
        ("engine_of_tests", {}, errors.RequestInvalidError, "name no model"),
        ("engine_of_tests", {"model": "m", "load_format": "auto"}, errors.RequestInvalidError, "have a load_format"),
        ("engine_that_is_not_there", {"model": "m"}, errors.RouteUnavailableError, "not installed"),
    ],
)
def test_what_makes_no_sense_starts_nothing(
    world: World, engine: str, arguments: dict[str, Any], kind: type[errors.Error], words: str
) -> None:
    with pytest.raises(kind, match=words):
        qualify(Wanted(engine, arguments, str(world.artifact)), world.environ)
    assert not (world.model / "starts").exists()
