"""The same command line finds its weights in the page cache: they came in while the engine was imported."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from coldsnap._bench import cache
from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require
from tests.engines.harness import Answer, Place, Start

# Which of the two depends on whether a reader had come to its end by then.
_SINCE_LAUNCH = r"of weights\.safetensors is in the page cache|a reader that began with the launch went on"
_SINCE_BUILDING = r"bytes of weights\.safetensors were read into the page cache|stopped after \d+ of \d+ bytes"


def make_cold(store: pathlib.Path) -> None:
    (artifact,) = artifacts(store)
    blob = artifact / "shard-00-00-00" / "weights.safetensors"
    residency = cache.make_cold(blob)
    if not cache.is_cold(residency):
        pytest.skip(f"the test's folder keeps its files in memory: residency {residency}")


def what_it_did_while_it_was_built(answer: Answer) -> str:
    (line,) = answer.lines("coldsnap: while the model was built: ")
    return line


def test_the_weights_are_there_before_the_model_is_built(tmp_path: pathlib.Path) -> None:
    store, place = tmp_path / "store", Place(tmp_path)
    start = by_coldsnap(Start(models.make("dense", tmp_path / "model")), store, VLLM_LOGGING_LEVEL="DEBUG")
    start = dataclasses.replace(start, processes=True, named="same")
    (captured,) = place.start(start)
    assert captured.lines("coldsnap: captured "), captured.log[-4000:]

    make_cold(store)
    (restored,) = place.start(start)
    require(restored, captured, "restored")
    assert re.search(_SINCE_LAUNCH, what_it_did_while_it_was_built(restored))

    make_cold(store)
    (by_another,) = place.start(dataclasses.replace(start, named="another"))
    require(by_another, captured, "restored")
    assert re.search(_SINCE_BUILDING, what_it_did_while_it_was_built(by_another))

    assert len(hints(place)) == 2
    (normal,) = place.start(dataclasses.replace(start, load_format="auto", extra={}))
    assert normal.outputs == captured.outputs
    assert len(hints(place)) == 1  # of the command line that still has one


def hints(place: Place) -> list[pathlib.Path]:
    return list((place.state / "launches").glob("*.json"))
