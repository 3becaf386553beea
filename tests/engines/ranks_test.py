"""Two ranks, and the second one's part of the artifact is damaged or gone: none restores alone, and both end alike."""

from __future__ import annotations

import pytest

from tests.engines import models
from tests.engines.cases import Copies, by_coldsnap, flip, require, why_normal
from tests.engines.harness import Answers, Place, Start

_SECOND = "shard-00-01-00"
_GONE = ("weights.safetensors", "manifest.json")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The starts of all tests below: by name, in the order of a name's starts."""
    folder = tmp_path_factory.mktemp("ranks")
    start = Start(models.make("dense", folder / "model"), ranks=2)
    copies, found = Copies(folder, folder / "store"), Answers(Place(folder))

    found.run(captured=by_coldsnap(start, copies.store))
    require(found["captured"][0], found["captured"][0], "captured", ranks=2)

    flipped = copies.start("flipped", start)
    flip(copies.blob("flipped", _SECOND))
    starts = {"flipped": flipped}
    for name in _GONE:
        for mode in ("auto", "restore"):
            starts[f"{name} {mode}"] = copies.start(f"{name} {mode}", start, mode=mode)
            (copies.artifact(f"{name} {mode}") / _SECOND / name).unlink()
    found.run(**starts)
    found.run(flipped=flipped)
    return found


def test_damage_of_one_rank_fails_both_and_the_next_start_serves(answers: Answers) -> None:
    failed, served = answers["flipped"]

    assert not failed.served
    assert not failed.lines("coldsnap: restored")
    # Rank 0 had its bytes and is not served either: it leaves no receipt that says so.
    assert [receipt["ok"] for receipt in failed.receipts] == [False]
    for rank in (0, 1):
        assert [line for line in failed.lines(f"Worker_TP{rank}") if "rank 1" in line and "DataLossError" in line]
    assert served.outputs == answers["captured"][0].outputs
    assert "is under quarantine (data_loss" in why_normal(served)


@pytest.mark.parametrize("name", _GONE)
def test_what_one_rank_misses_means_a_normal_load_of_both(answers: Answers, name: str) -> None:
    (answer,) = answers[f"{name} auto"]

    assert answer.outputs == answers["captured"][0].outputs, answer.log[-4000:]
    assert name in why_normal(answer)
    assert not answer.receipts


@pytest.mark.parametrize("name", _GONE)
def test_where_a_restore_is_asked_for_both_end(answers: Answers, name: str) -> None:
    (answer,) = answers[f"{name} restore"]

    assert not answer.served
    assert answer.status != 0
    for rank in (0, 1):
        lines = [line for line in answer.lines(f"Worker_TP{rank}") if "as the mode says" in line]
        assert [line for line in lines if name in line], answer.log[-4000:]
