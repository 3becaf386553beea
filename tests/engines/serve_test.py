"""vLLM's HTTP server in a plain loop that starts it again, as seen from outside: nobody gets an answer before a verdict."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import shutil

import pytest

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, flip
from tests.engines.harness import Answer, Place, Served, Start


@dataclasses.dataclass(frozen=True)
class Rounds:
    """What the starts of all tests below did.

    Attributes:
        captured: The start that captured the artifact, after a normal load.
        corrupted: Three servers one after the other, over an artifact with a flipped bit.
        doubted: Two over an artifact whose engine is said to have answered otherwise.
        trusted: One over the artifact as it was captured.
    """

    captured: Answer
    corrupted: list[Served]
    doubted: list[Served]
    trusted: list[Served]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    folder = tmp_path_factory.mktemp("serve")
    model = models.make("tied", folder / "model")
    place = Place(folder)
    (captured,) = place.start(by_coldsnap(Start(model), folder / "store"))
    assert captured.lines("coldsnap: captured "), captured.log[-4000:]

    def copied(name: str) -> Start:
        for kept in ("store", "state"):
            shutil.copytree(folder / kept, folder / name / kept)
        return by_coldsnap(Start(model), folder / name / "store", COLDSNAP_STATE_DIR=str(folder / name / "state"))

    corrupted, doubted, trusted = copied("corrupted"), copied("doubted"), copied("trusted")
    (artifact,) = artifacts(folder / "corrupted" / "store")
    flip(artifact / "shard-00-00-00" / "weights.safetensors")
    (oracle,) = (folder / "doubted" / "state" / "oracles").glob("*.json")
    said = json.loads(oracle.read_text())
    oracle.write_text(json.dumps(said | {"tokens": [token ^ 1 for token in said["tokens"]]}))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        loop = pool.submit(lambda: [place.serve(corrupted) for _ in range(3)])
        others = pool.submit(lambda: [place.serve(start) for start in (doubted, doubted, trusted)])
        return Rounds(captured, loop.result(), others.result()[:2], others.result()[2:])


def _require_normal(served: Served, captured: Answer) -> None:
    """It loaded normally and serves what a normal load gives."""
    assert served.statuses == [200], served.log[-4000:]
    assert served.outputs == captured.outputs
    assert not served.lines("coldsnap: restored ")
    (line,) = served.lines("coldsnap: loading normally: ")
    assert "is under quarantine" in line


def test_a_loop_over_a_corrupted_artifact_fails_once_and_then_serves(rounds: Rounds) -> None:
    failed, second, third = rounds.corrupted

    assert failed.statuses == []
    assert failed.status not in (0, None)
    assert failed.lines("DataLossError"), failed.log[-4000:]
    for served in (second, third):
        _require_normal(served, rounds.captured)


def test_a_failed_probation_is_never_ready_and_the_next_start_serves(rounds: Rounds) -> None:
    failed, second = rounds.doubted

    assert failed.statuses == []
    assert failed.status not in (0, None)
    assert len(failed.lines("coldsnap: restored ")) == 1
    assert failed.lines("ask the engine restored from artifact"), failed.log[-4000:]
    _require_normal(second, rounds.captured)


def test_a_passed_probation_is_decided_before_the_server_is_ready(rounds: Rounds) -> None:
    (served,) = rounds.trusted

    assert served.statuses == [200], served.log[-4000:]
    assert served.outputs == rounds.captured.outputs
    assert len(served.lines("coldsnap: restored ")) == 1
    assert len(served.lines("is qualified: the engine says what the one that captured it said")) == 1
