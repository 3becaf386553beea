"""vLLM's HTTP server, started by its module as a user does."""

from __future__ import annotations

import pathlib

from tests.engines import models
from tests.engines.cases import by_coldsnap, require
from tests.engines.harness import PROMPTS, Place, Start, receipts_in


def test_a_server_restores_and_answers_as_a_normal_engine(tmp_path: pathlib.Path) -> None:
    model = models.make("tied", tmp_path / "model")
    start = by_coldsnap(Start(model), tmp_path / "store")
    place = Place(tmp_path)
    normal, captured = place.start(Start(model), start)
    require(captured, normal, "captured")

    with place.serving(start) as server:
        outputs = [server.complete(prompt) for prompt in PROMPTS]
    assert outputs == normal.outputs
    assert len([line for line in server.log.splitlines() if "coldsnap: restored " in line]) == 1
    assert [receipt["operation"] for receipt in receipts_in(server.folder)] == ["hydrate"]
