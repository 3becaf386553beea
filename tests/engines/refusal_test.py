"""Weights that end behind handles of native code: what is finished is refused, never captured in part."""

from __future__ import annotations

import pathlib
import re

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require, strategies
from tests.engines.harness import Place, Start


def test_int8_is_refused_as_finished_and_captured_before_post_processing(tmp_path: pathlib.Path) -> None:
    model, store = models.make("int8", tmp_path / "model"), tmp_path / "store"
    place = Place(tmp_path)
    normal, refused = place.start(Start(model), by_coldsnap(Start(model), store))

    assert normal.served, normal.log[-4000:]
    assert refused.outputs == normal.outputs
    (line,) = refused.lines("coldsnap: not captured: ")
    assert re.search(r"model\.layers\.0\.\S+\.handler_tensor: torch\.Tensor: it holds 0x", line), line
    assert not artifacts(store)

    for done in ("captured", "restored"):
        (answer,) = place.start(by_coldsnap(Start(model), store))
        require(answer, normal, done)
        (artifact,) = artifacts(store)
        assert strategies(artifact) == ["loaded"]
