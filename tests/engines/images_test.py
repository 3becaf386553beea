"""A model for images, whole and for text alone: what a start leaves out is part of what it is, however it was asked for."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

import coldsnap
from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require, why_normal
from tests.engines.harness import Answers, Place, Start

_TEXT_ONLY = {
    "switch": {"language_model_only": True},
    "limits": {"limit_mm_per_prompt": {"image": 0, "video": 0}},
}


@dataclasses.dataclass
class World:
    """The answers of all starts by name, and the stores by the spelling whose starts captured into them."""

    answers: Answers
    stores: dict[str, pathlib.Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The starts of all tests below. A store has the whole model's artifact before a start for text alone sees it."""
    folder = tmp_path_factory.mktemp("images")
    model = models.make("images", folder / "model")
    whole = Start(model, image=1)
    text = {name: Start(model, engine=engine) for name, engine in _TEXT_ONLY.items()}
    stores = {name: folder / f"store-{name}" for name in _TEXT_ONLY}
    found = Answers(Place(folder))

    found.run(
        normal=whole,
        other_image=dataclasses.replace(whole, image=2),
        switch=by_coldsnap(whole, stores["switch"]),
        limits=by_coldsnap(whole, stores["limits"]),
        text=text["switch"],
    )
    found.run(
        restored=by_coldsnap(whole, stores["switch"], mode="restore"),
        **{name: by_coldsnap(text[name], store) for name, store in stores.items()},
    )
    # Each spelling restores what the other one captured.
    found.run(
        switch=by_coldsnap(text["limits"], stores["switch"], mode="restore"),
        limits=by_coldsnap(text["switch"], stores["limits"], mode="restore"),
    )
    return World(found, stores)


def test_the_whole_model_is_restored_and_its_tower_counts(world: World) -> None:
    (normal,), (other,), (restored,) = (world.answers[name] for name in ("normal", "other_image", "restored"))

    assert other.served, other.log[-4000:]
    assert other.outputs != normal.outputs
    require(world.answers["switch"][0], normal, "captured")
    require(restored, normal, "restored")


@pytest.mark.parametrize("spelling", _TEXT_ONLY)
def test_an_engine_for_text_alone_takes_its_own_artifact_and_no_other(world: World, spelling: str) -> None:
    (normal,) = world.answers["text"]
    _, captured, restored = world.answers[spelling]

    assert why_normal(captured).endswith("multimodal.left_out was empty and is image,video")
    require(captured, normal, "captured")
    require(restored, normal, "restored")


def test_both_spellings_give_one_artifact_without_the_tower(world: World) -> None:
    found = {}
    for name, store in world.stores.items():
        for artifact in artifacts(store):
            with coldsnap.open(artifact) as opened:
                found.setdefault(opened.artifact_root, []).append((name, list(opened), opened.scalars))

    whole, text = sorted(found.values(), key=lambda entries: -len(entries[0][1]))
    assert [name for name, *_ in whole] == [name for name, *_ in text] == ["switch", "limits"]
    towers = [{name for name in names if name.startswith("visual.")} for _, names, _ in (whole[0], text[0])]
    assert towers[0]
    assert not towers[1]
    # What is left out stands there by name, without memory, under the module that takes its place.
    missing = text[0][2]["coldsnap.missing"]
    assert set(missing.values()) == {"visual (vllm.model_executor.models.utils.StageMissingLayer)"}
