"""A capture of a running engine by a request: what it says comes back as the request's own receipt."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import errors, schema_command
from coldsnap.adapters.control_server import ControlServer
from tests.request import validator, world

IDENTITY = {"model": "example"}
RECEIPT = schema_command.document()["$defs"]["receipt"]


class Engine:
    """An engine of one array; ``stores`` are those that it was asked for."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.stores: list[str | None] = []
        self._own = folder / "own"
        self.failure: Exception | None = None

    def answer(self, request: dict[str, Any], tell: Callable[[int, int], object]) -> dict[str, Any]:
        if request["operation"] == "status":
            return {"report": {"start": "loaded"}, "receipt": None}
        self.stores.append(request["store"])
        if self.failure is not None:
            raise self.failure
        store = request["store"] or str(self._own)
        receipt = coldsnap.capture({"w": np.arange(9.0)}, store=store, identity=IDENTITY, progress=tell)
        return {"report": {"path": f"{store}/{receipt.artifact_root}", "tensors": 1}, "receipt": receipt.as_dict()}


@pytest.fixture
def engine(tmp_path: pathlib.Path) -> Iterator[Engine]:
    found = Engine(tmp_path)
    (tmp_path / "world").mkdir()
    server = ControlServer(str(tmp_path / "ours" / "socket"), found.answer)
    yield found
    server.close()


def ask(tmp_path: pathlib.Path, **more: Any) -> tuple[dict[str, Any], int]:
    control = str(tmp_path / "ours" / "socket")
    request = {"format": 1, "operation": "capture", "source": {"control": control}, **more}
    done = world.ask(tmp_path / "world", json.dumps(request).encode())
    receipt = json.loads(done.stdout)
    assert validator.broken(RECEIPT, receipt) == set()
    return receipt, done.returncode


def test_into_the_engine_s_own_store(tmp_path: pathlib.Path, engine: Engine) -> None:
    receipt, code = ask(tmp_path)
    assert (receipt["ok"], code, engine.stores) == (True, 0, [None])
    assert receipt["report"] == {"path": f"{tmp_path}/own/{receipt['artifact_root']}", "tensors": 1}
    with coldsnap.Store(tmp_path / "own").open(IDENTITY) as artifact:
        assert artifact.artifact_root == receipt["artifact_root"]


def test_into_a_store_that_is_named_from_here(tmp_path: pathlib.Path, engine: Engine) -> None:
    _, code = ask(tmp_path, store="beside")
    assert (code, engine.stores) == (0, [os.path.join(str(tmp_path), "world", "beside")])


def test_what_the_engine_refuses_is_the_receipt_s_error(tmp_path: pathlib.Path, engine: Engine) -> None:
    engine.failure = errors.ExistsError("capture the running engine: it is artifact abc", remedy="use it")
    receipt, code = ask(tmp_path)
    assert (code, receipt["error"]) == (
        3,
        {
            "code": "exists",
            "message": "capture the running engine: it is artifact abc",
            "stage": "",
            "remedy": "use it",
        },
    )
    failure = errors.DataLossError("capture extent 0 (w): its memory changed")
    failure.receipt = coldsnap.capture({"w": np.arange(9.0)}, tmp_path / "artifact")
    engine.failure = failure
    receipt, code = ask(tmp_path)
    assert (code, receipt["payload_bytes"]) == (4, 72)  # the engine's own account of the failure


def test_what_it_says_of_itself_is_the_report(tmp_path: pathlib.Path, engine: Engine) -> None:
    control = str(tmp_path / "ours" / "socket")
    done = world.ask(tmp_path / "world", json.dumps({"format": 1, "operation": "status", "control": control}).encode())
    receipt = json.loads(done.stdout)
    assert (receipt["ok"], receipt["operation"], receipt["report"]) == (True, "status", {"start": "loaded"})
