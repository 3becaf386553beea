"""What is wrong with an artifact never becomes a token: a start loads normally or fails and says why."""

from __future__ import annotations

import pytest

from tests.engines import models
from tests.engines.cases import Copies, artifacts, by_coldsnap, flip, require, why_normal
from tests.engines.harness import Answers, Place, Start


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The starts of all tests below, two at a time: by name, in the order of a name's starts."""
    folder = tmp_path_factory.mktemp("damage")
    model = models.make("dense", folder / "model")
    other = models.make("dense", folder / "other", seed=2)
    edited = models.edited(models.make("dense", folder / "edited"), rope_theta=5000.0)
    copies, found = Copies(folder, folder / "store"), Answers(Place(folder))

    found.run(normal=Start(model), captured=by_coldsnap(Start(model), copies.store))
    require(found["captured"][0], found["normal"][0], "captured")
    (artifact,) = artifacts(copies.store)

    flipped, cut = copies.start("flipped", Start(model)), copies.start("cut", Start(model))
    flip(copies.blob("flipped"))
    blob = copies.blob("cut")
    with blob.open("r+b") as file:
        file.truncate(blob.stat().st_size - 4096)
    found.run(
        flipped=flipped,
        cut=cut,
        other=copies.start("other", Start(other)),
        other_normal=Start(other),
        edited=copies.start("edited", Start(edited)),
        edited_normal=Start(edited),
        named=copies.start("named", Start(other), artifact=artifact),
        insisted=copies.start("insisted", Start(other), mode="restore", artifact=artifact),
    )
    found.run(flipped=flipped, cut=copies.start("cut", Start(model), mode="restore"))
    found.run(flipped=flipped)
    return found


def test_a_flipped_bit_costs_one_start_and_then_the_engine_serves(answers: Answers) -> None:
    failed, second, third = answers["flipped"]

    assert not failed.served
    assert failed.status != 0
    assert failed.lines("DataLossError"), failed.log[-4000:]
    assert failed.lines("the artifact is now under quarantine, and the next start loads normally")
    assert [(receipt["ok"], receipt["error"]["code"]) for receipt in failed.receipts] == [(False, "data_loss")]
    for answer in (second, third):
        assert answer.outputs == answers["normal"][0].outputs, answer.log[-4000:]
        assert "is under quarantine (data_loss" in why_normal(answer)


def test_a_cut_blob_means_a_normal_load_or_where_a_restore_is_asked_for_none(answers: Answers) -> None:
    automatic, insisted = answers["cut"]

    assert automatic.outputs == answers["normal"][0].outputs, automatic.log[-4000:]
    why_normal(automatic)
    assert not insisted.served
    assert insisted.status != 0
    assert insisted.lines("restore or capture the model, as the mode says") or insisted.lines("is under quarantine")


def test_other_values_of_the_same_shapes_are_another_model(answers: Answers) -> None:
    (answer,), (normal,) = answers["other"], answers["other_normal"]

    assert normal.outputs != answers["normal"][0].outputs
    assert "there is no artifact of this model" in why_normal(answer)
    require(answer, normal, "captured")


def test_an_edited_configuration_is_another_model(answers: Answers) -> None:
    (answer,), (normal,) = answers["edited"], answers["edited_normal"]

    assert normal.outputs != answers["normal"][0].outputs
    assert "there is no artifact of this model" in why_normal(answer)
    require(answer, normal, "captured")


def test_an_artifact_of_another_model_is_not_restored_by_its_name(answers: Answers) -> None:
    (automatic,), (insisted,) = answers["named"], answers["insisted"]

    assert automatic.outputs == answers["other_normal"][0].outputs, automatic.log[-4000:]
    assert "is of another start: checkpoint" in why_normal(automatic)
    assert not automatic.receipts
    assert not insisted.served
    assert insisted.lines("is of another start: checkpoint"), insisted.log[-4000:]
