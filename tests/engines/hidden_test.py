"""Every hiding place that engines are known to have, in a real engine: restored bit for bit, or refused by its name.

Some the engine has itself, and they are looked for by name; `hidden_tensors` brings the others. Towers that are left out
are `images_test`'s, and what ends behind handles of native code without any plugin is `refusal_test`'s.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load_file

import coldsnap
from coldsnap.destinations import torch_destinations
from tests.engines import hidden_tensors, models, plain_layers
from tests.engines.cases import artifacts, by_coldsnap, require, why_normal
from tests.engines.harness import Answers, Place, Start

_LAYER = "model.layers.0.mlp"
_ATTENTION = "model.layers.0.self_attn"
# The native library's products, of which a start would capture what they are made from; here it is to take them as finished.
_HANDLES = {plain_layers.VARIABLE: plain_layers.HANDLES, "COLDSNAP_TEST_STRATEGY": "shape"}


class World:
    """A model for all starts, their stores, and their answers by name."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.answers = Answers(Place(folder))
        self.models = {kind: models.make(kind, folder / kind) for kind in ("dense", "moe")}

    def start(self, name: str, hidden: str, *, mode: str = "auto", kind: str = "dense", **environment: str) -> Start:
        """A start with what is hidden, and a store for each name."""
        environment[hidden_tensors.VARIABLE] = hidden
        environment["COLDSNAP_STATE_DIR"] = str(self.folder / name / "state")
        return by_coldsnap(Start(self.models[kind]), self.folder / name / "store", mode, **environment)

    def artifact(self, name: str) -> pathlib.Path:
        (artifact,) = artifacts(self.folder / name / "store")
        return artifact


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The starts of all tests below."""
    world = World(tmp_path_factory.mktemp("hidden"))
    world.answers.run(
        without=Start(world.models["dense"]),
        normal=Start(world.models["dense"], environment={hidden_tensors.VARIABLE: "tensors"}),
        tensors=world.start("tensors", "tensors"),
        moe=world.start("moe", "", kind="moe"),
        native=world.start("native", "tensors,native"),
        handles=world.start("handles", "", **_HANDLES),
        float=world.start("float", "tensors,float"),
    )
    world.answers.run(
        tensors=world.start("tensors", "tensors", mode="restore"), float=world.start("float", "tensors,float")
    )
    world.answers.run(float=world.start("float", "tensors,float"))
    return world


@pytest.fixture
def artifact(world: World) -> Iterator[coldsnap.Artifact]:
    """Of the model with hidden tensors."""
    with coldsnap.open(world.artifact("tensors")) as opened:
        yield opened


def test_hidden_tensors_count_and_come_back(world: World) -> None:
    (without,), (normal,) = world.answers["without"], world.answers["normal"]
    captured, restored = world.answers["tensors"]

    assert all(mine[0] != theirs[0] for mine, theirs in zip(without.outputs, normal.outputs, strict=True))
    require(captured, normal, "captured")
    require(restored, normal, "restored")


def test_each_place_is_in_the_artifact_with_its_values(world: World, artifact: coldsnap.Artifact) -> None:
    tensors = torch_destinations(artifact, "cpu")
    coldsnap.hydrate(artifact, tensors)
    rows = load_file(world.models["dense"] / "model.safetensors")[f"{_LAYER}.gate_proj.weight"]

    for row, place in enumerate(hidden_tensors.PLACES[:-1]):
        assert torch.equal(tensors[f"{_LAYER}.{place}"], rows[row]), place
    fused, part, turned, alias = (
        artifact[f"{_LAYER}.{name}"]
        for name in (hidden_tensors.PLACES[-1], hidden_tensors.PART, hidden_tensors.TURNED, hidden_tensors.ALIAS)
    )
    assert torch.equal(tensors[f"{_LAYER}.{hidden_tensors.PLACES[-1]}"], rows[6:8])
    assert {fused.extent} == {part.extent, turned.extent}
    assert part.offset == fused.offset + fused.nbytes // 2
    assert turned.strides == fused.strides[::-1]
    assert alias.object == artifact[f"{_LAYER}.hidden_kernel.tensor"].object
    assert artifact[f"{_LAYER}.{hidden_tensors.PLACEHOLDER}"].nbytes == 0
    assert "persistent=false" in artifact[f"{_LAYER}.hidden_buffer"].attrs
    assert artifact.scalars["coldsnap.scalars"][hidden_tensors.FLAG] is True


def test_what_the_engine_hides_itself_is_in_the_artifact(artifact: coldsnap.Artifact) -> None:
    scalars = artifact.scalars["coldsnap.scalars"]
    rotary = [artifact[f"model.layers.{layer}.self_attn.rotary_emb.cos_sin_cache"] for layer in (0, 1)]

    assert "persistent=false" in rotary[0].attrs
    assert rotary[0].object == rotary[1].object
    assert artifact[f"{_ATTENTION}.attn._k_scale"].role == "buffer"
    assert artifact[f"{_ATTENTION}.attn._k_scale_cpu"].role == "attribute"
    assert scalars[f"{_ATTENTION}.attn._k_scale_float"] == f"f64:{struct.pack('>d', 1.0).hex()}"
    assert artifact[f"{_ATTENTION}.attn.kv_cache"].nbytes == 0  # there is none yet
    assert artifact.scalars["coldsnap.opaque"]["model.config"].startswith("transformers.")


def test_experts_have_aliases_and_groups_of_processes(world: World) -> None:
    with coldsnap.open(world.artifact("moe")) as artifact:
        gate = artifact[f"{_LAYER}.gate.weight"]
        assert artifact[f"{_LAYER}.experts.gate.weight"].object == gate.object
        assert artifact.scalars["coldsnap.opaque"][f"{_LAYER}.ep_group"].startswith("torch.distributed.")


def test_what_a_walk_can_not_look_into_is_refused_by_name(world: World) -> None:
    (answer,), (normal,) = world.answers["native"], world.answers["normal"]
    (line,) = answer.lines("coldsnap: not captured: ")

    assert answer.outputs == normal.outputs
    assert f"{_LAYER}.{hidden_tensors.ARRAY}: array.array: its state is native code's" in line
    assert f"{_LAYER}.{hidden_tensors.POINTER}: torch.Tensor: it holds 0x" in line
    assert not artifacts(world.folder / "native" / "store")


def test_handles_of_native_code_are_refused_by_name(world: World) -> None:
    (answer,) = world.answers["handles"]
    (line,) = answer.lines("coldsnap: not captured: ")

    assert answer.served, answer.log[-4000:]
    assert f"{_LAYER}.down_proj.cpu_linear.closure[0].handler_tensor: torch.Tensor: it holds 0x" in line
    assert not artifacts(world.folder / "handles" / "store")


def test_a_value_that_only_loading_sets_costs_one_start(world: World) -> None:
    (normal,) = world.answers["normal"]
    captured, failed, served = world.answers["float"]

    require(captured, normal, "captured")
    assert not failed.served
    assert failed.status != 0
    assert failed.lines(f"{_LAYER}.{hidden_tensors.FLOAT}: value "), failed.log[-4000:]
    assert failed.lines("the artifact is now under quarantine, and the next start loads normally")
    assert served.outputs == normal.outputs, served.log[-4000:]
    assert "is under quarantine (layout_mismatch" in why_normal(served)
