"""What is no longer as it was captured, in a start that may load normally and in one that was told to restore."""

from __future__ import annotations

import dataclasses

import pytest

from tests.engines import models
from tests.engines.cases import Copies, by_coldsnap, flip, require, why_normal
from tests.engines.harness import Answers, Place, Start

# What a refusal says, by what differs. A checkpoint whose files differ is another model.
_CHANGED = {
    "dtype": "model.dtype was torch.bfloat16 and is torch.float16",
    "config": "there is no artifact of this model",
    "values": "there is no artifact of this model",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The starts of all tests below: by name, in the order of a name's starts."""
    folder = tmp_path_factory.mktemp("insisting")
    model = models.make("dense", folder / "model")
    start = Start(model)
    changed = {
        "dtype": dataclasses.replace(start, engine={"dtype": "float16"}),
        "config": Start(models.edited(models.make("dense", folder / "config"), rope_theta=5000.0)),
        "values": Start(models.make("dense", folder / "values", seed=2)),
    }
    insisting = {f"{name} restore": each for name, each in changed.items()}
    copies, found = Copies(folder, folder / "store"), Answers(Place(folder))

    found.run(normal=start, captured=by_coldsnap(start, copies.store), dtype=changed["dtype"])
    require(found["captured"][0], found["normal"][0], "captured")
    flipped = copies.start("flipped", start, mode="restore")
    flip(copies.blob("flipped"))
    found.run(
        flipped=flipped,
        dtype=copies.start("dtype", changed["dtype"]),
        **{name: copies.start(name, each, mode="restore") for name, each in insisting.items()},
    )
    found.run(flipped=flipped)
    return found


def test_another_dtype_is_another_start_and_is_named(answers: Answers) -> None:
    normal, answer = answers["dtype"]

    assert normal.outputs != answers["normal"][0].outputs
    assert _CHANGED["dtype"] in why_normal(answer)
    require(answer, normal, "captured")


@pytest.mark.parametrize("name", _CHANGED)
def test_a_start_that_has_to_restore_refuses_what_was_captured_of_another(answers: Answers, name: str) -> None:
    (answer,) = answers[f"{name} restore"]

    assert not answer.served
    assert answer.status != 0
    assert answer.lines("PolicyRefusedError: restore or capture the model, as the mode says"), answer.log[-4000:]
    assert [line for line in answer.lines("as the mode says") if _CHANGED[name] in line], answer.lines(
        "as the mode says"
    )
    assert not answer.receipts


def test_a_start_that_has_to_restore_never_serves_a_flipped_bit(answers: Answers) -> None:
    first, second = answers["flipped"]

    for answer in (first, second):
        assert not answer.served
        assert answer.status != 0
    assert first.lines("the artifact is now under quarantine, and capture it again"), first.log[-4000:]
    assert [(receipt["ok"], receipt["error"]["code"]) for receipt in first.receipts] == [(False, "data_loss")]
    assert second.lines("QuarantinedError: restore the model, as the mode says"), second.log[-4000:]
    assert not second.receipts
