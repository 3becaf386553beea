"""What is wrong with an artifact never becomes a token: a start loads normally or fails and says why."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import shutil

import pytest

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, flip, require
from tests.engines.harness import Answer, Place, Start

Answers = dict[str, list[Answer]]


@dataclasses.dataclass
class World:
    """A captured model, its neighbours, and a folder for each case's store and state."""

    folder: pathlib.Path
    model: pathlib.Path
    store: pathlib.Path

    def start(
        self, name: str, model: pathlib.Path, *, mode: str = "auto", artifact: pathlib.Path | None = None
    ) -> Start:
        """A start of the case ``name`` over a copy of the store; another of the same name finds what the first left."""
        store = self.folder / name / "store"
        if not store.exists():
            shutil.copytree(self.store, store, symlinks=True)
        start = by_coldsnap(Start(model), store, mode, COLDSNAP_STATE_DIR=str(self.folder / name / "state"))
        if artifact is not None:
            start = dataclasses.replace(start, extra={"coldsnap": {"mode": mode, "artifact": str(artifact)}})
        return start

    def blob(self, name: str) -> pathlib.Path:
        """The weights of the case's only artifact, made writable."""
        (artifact,) = artifacts(self.folder / name / "store")
        (blob,) = artifact.glob("shard-*/weights.safetensors")
        blob.chmod(0o644)
        return blob


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The starts of all tests below, two at a time: by name, in the order of a name's starts."""
    folder = tmp_path_factory.mktemp("damage")
    model = models.make("dense", folder / "model")
    other = models.make("dense", folder / "other", seed=2)
    edited = models.make("dense", folder / "edited")
    config = json.loads((edited / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 5000.0
    (edited / "config.json").write_text(json.dumps(config))

    world = World(folder, model, folder / "store")
    place = Place(folder)
    found: Answers = collections.defaultdict(list)

    def run(**starts: Start) -> None:
        for name, answer in zip(starts, place.start(*starts.values()), strict=True):
            found[name].append(answer)

    run(normal=Start(model), captured=by_coldsnap(Start(model), world.store))
    require(found["captured"][0], found["normal"][0], "captured")
    (artifact,) = artifacts(world.store)

    flipped, cut = world.start("flipped", model), world.start("cut", model)
    flip(world.blob("flipped"))
    blob = world.blob("cut")
    with blob.open("r+b") as file:
        file.truncate(blob.stat().st_size - 4096)
    run(
        flipped=flipped,
        cut=cut,
        other=world.start("other", other),
        other_normal=Start(other),
        edited=world.start("edited", edited),
        edited_normal=Start(edited),
        named=world.start("named", other, artifact=artifact),
        insisted=world.start("insisted", other, mode="restore", artifact=artifact),
    )
    run(flipped=flipped, cut=world.start("cut", model, mode="restore"))
    run(flipped=flipped)
    return found


def _why(answer: Answer) -> str:
    """Why a start did not restore, as its log says once."""
    assert not answer.lines("coldsnap: restored")
    (line,) = answer.lines("coldsnap: loading normally: ")
    return line.partition("normally: ")[2]


def test_a_flipped_bit_costs_one_start_and_then_the_engine_serves(answers: Answers) -> None:
    failed, second, third = answers["flipped"]

    assert not failed.served
    assert failed.status != 0
    assert failed.lines("DataLossError"), failed.log[-4000:]
    assert failed.lines("the artifact is now under quarantine, and the next start loads normally")
    assert [(receipt["ok"], receipt["error"]["code"]) for receipt in failed.receipts] == [(False, "data_loss")]
    for answer in (second, third):
        assert answer.outputs == answers["normal"][0].outputs, answer.log[-4000:]
        assert "is under quarantine (data_loss" in _why(answer)


def test_a_cut_blob_means_a_normal_load_or_where_a_restore_is_asked_for_none(answers: Answers) -> None:
    automatic, insisted = answers["cut"]

    assert automatic.outputs == answers["normal"][0].outputs, automatic.log[-4000:]
    _why(automatic)
    assert not insisted.served
    assert insisted.status != 0
    assert insisted.lines("restore or capture the model, as the mode says") or insisted.lines("is under quarantine")


def test_other_values_of_the_same_shapes_are_another_model(answers: Answers) -> None:
    (answer,), (normal,) = answers["other"], answers["other_normal"]

    assert normal.outputs != answers["normal"][0].outputs
    assert "there is no artifact of this model" in _why(answer)
    require(answer, normal, "captured")


def test_an_edited_configuration_is_another_start_and_is_named(answers: Answers) -> None:
    (answer,), (normal,) = answers["edited"], answers["edited_normal"]

    assert normal.outputs != answers["normal"][0].outputs
    _why(answer)
    require(answer, normal, "captured")


def test_an_artifact_of_another_model_is_not_restored_by_its_name(answers: Answers) -> None:
    (automatic,), (insisted,) = answers["named"], answers["insisted"]

    assert automatic.outputs == answers["other_normal"][0].outputs, automatic.log[-4000:]
    assert "is of another start: checkpoint" in _why(automatic)
    assert not automatic.receipts
    assert not insisted.served
    assert insisted.lines("is of another start: checkpoint"), insisted.log[-4000:]
