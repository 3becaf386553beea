"""`coldsnap request` with `qualify`: a restored engine has to say what it should, or its artifact goes under quarantine."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import coldsnap
from coldsnap import quarantine
from coldsnap.adapters import oracle
from coldsnap.destinations import torch_destinations
from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require
from tests.engines.harness import Place, Start


class Qualifier:
    """Asks for an artifact to be qualified, as a program does."""

    def __init__(self, folder: pathlib.Path, place: Place, start: Start) -> None:
        self._arguments = {
            name: value
            for name, value in start.arguments().items()
            if name not in ("load_format", "model_loader_extra_config")
        }
        self.environment = place.environment(start, folder)

    def ask(self, **which: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the receipt; standard output has that one line alone."""
        request = {"format": 1, "operation": "qualify", "engine": "vllm", "arguments": self._arguments, **which}
        done = subprocess.run(
            [sys.executable, "-m", "coldsnap.cli", "request", "-"],
            env=self.environment,
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            timeout=240,
        )
        (line,) = done.stdout.splitlines()
        receipt = json.loads(line)
        started = receipt["error"] is None or receipt["error"]["code"] != "quarantined"
        assert (b"coldsnap: restored " in done.stderr) == started  # the engine's log
        return done.returncode, receipt


def with_other_values(artifact: pathlib.Path, store: pathlib.Path) -> pathlib.Path:
    """An artifact like the other one in all but the values of a weight, and whole; the store's current one."""
    with coldsnap.open(artifact) as opened:
        tensors = torch_destinations(opened, "cpu")
        coldsnap.hydrate(opened, tensors)
        name = next(name for name in tensors if name.endswith("norm.weight"))
        tensors[name].neg_()
        roles = {each: opened[each].role for each in opened}
        attrs = {each: opened[each].attrs for each in opened}
        identity, scalars = dict(opened.identity), dict(opened.scalars)
    receipt = coldsnap.capture(
        tensors, store=store, identity=identity, scalars=scalars, roles=roles, attrs=attrs, replace=True
    )
    return artifact.parent / str(receipt.artifact_root)


def test_qualified_or_under_quarantine(tmp_path: pathlib.Path) -> None:
    start = by_coldsnap(Start(models.make("dense", tmp_path / "model")), tmp_path / "store")
    place = Place(tmp_path)
    (captured,) = place.start(start)
    require(captured, captured, "captured")
    (artifact,) = artifacts(tmp_path / "store")
    qualifier = Qualifier(tmp_path, place, start)
    environ = qualifier.environment

    code, receipt = qualifier.ask(artifact=str(artifact))
    assert (code, receipt["report"] and receipt["report"]["compared_with"]) == (0, "recorded"), receipt["error"]
    then = oracle.read(artifact.name, environ)
    assert then is not None and then.qualified

    oracle.write(artifact.name, then._replace(tokens=then.tokens[::-1]), environ)
    code, receipt = qualifier.ask(artifact=str(artifact))
    assert (code, receipt["error"]["code"]) == (3, "layout_mismatch")
    assert "and the engine that captured it" in receipt["error"]["message"]
    assert quarantine.find(artifact.name, environ) is not None
    code, receipt = qualifier.ask(artifact=str(artifact))
    assert (code, receipt["error"]["code"]) == (3, "quarantined")

    other = with_other_values(artifact, tmp_path / "store")
    code, receipt = qualifier.ask(
        store=str(tmp_path / "store")
    )  # nothing is recorded: a normal start says what is right
    assert (code, receipt["error"] and receipt["error"]["code"]) == (3, "layout_mismatch"), receipt
    assert f"restored from artifact {other.name[:12]}" in receipt["error"]["message"]
    record = quarantine.find(other.name, environ)
    assert record is not None and record.operation == "qualify"
