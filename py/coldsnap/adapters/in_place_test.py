"""A live model beside its artifact: what came later does not count, and every changed byte does."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import torch

import coldsnap
from coldsnap.adapters import in_place, snapshot
from coldsnap.adapters.walker import Walked, walk
from coldsnap.artifact import Artifact

PIECE = 65536


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5
        self.planned = None
        self.compiled = None
        self.kv_cache = torch.tensor([], dtype=torch.bfloat16)
        self.bound = (torch.tensor([]), torch.tensor([]))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Parameter(torch.arange(10.0), requires_grad=False)
        self.large = torch.nn.Parameter(torch.arange(5 * (1 << 20), dtype=torch.float32), requires_grad=False)
        self.tied = self.large
        self.attention = Attention()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def artifact(model: Model, tmp_path: pathlib.Path) -> Iterator[Artifact]:
    tensors, roles, attrs, scalars = snapshot.sources(walk(model))
    coldsnap.capture(tensors, tmp_path / "artifact", roles=roles, attrs=attrs, scalars=scalars)
    with coldsnap.open(tmp_path / "artifact") as opened:
        yield opened


def later(path: str) -> bool:
    return "kv_cache" in path or "bound" in path


def as_captured(model: Model, artifact: Artifact) -> Walked:
    return in_place.as_captured(walk(model), artifact, later)


def serve(model: Model) -> None:
    """What an engine does to a model after loading."""
    model.attention.kv_cache = torch.zeros(3, 4, 5)
    model.attention.bound = [torch.zeros(7)]
    model.attention.isa = "vec"
    model.attention.planned = 0.25
    model.attention.plan = {"rows": torch.zeros(3)}
    model.attention.native = memoryview(b"what can't be looked into")
    model.attention.compiled = serve.__code__


def test_what_an_engine_adds_after_loading_is_no_difference(model: Model, artifact: Artifact) -> None:
    serve(model)
    assert {"attention.native", "attention.compiled"} <= walk(model).refused.keys()
    assert snapshot.differences(walk(model), artifact)
    assert snapshot.differences(as_captured(model, artifact), artifact) == []
    assert snapshot.destinations(as_captured(model, artifact)).keys() == set(artifact)


def test_what_was_captured_has_to_be_there_as_it_was(model: Model, artifact: Artifact) -> None:
    model.attention.scale = 0.75
    model.tied = torch.nn.Parameter(model.large.detach().clone(), requires_grad=False)
    del model.small
    found = "\n".join(snapshot.differences(as_captured(model, artifact), artifact))
    for part in ("attention.scale: value ", "tied: object ", "small: in the artifact, and not in the model"):
        assert part in found


def test_a_captured_object_that_can_t_be_looked_into_any_more_is_a_difference(model: Model, artifact: Artifact) -> None:
    model.attention.scale = memoryview(b"")
    found = snapshot.differences(as_captured(model, artifact), artifact)
    assert any(line.startswith("attention.scale: builtins.memoryview: its state") for line in found)


def test_where_the_engine_puts_something_later_it_may_be_of_any_kind(model: Model, artifact: Artifact) -> None:
    model.attention.bound = memoryview(b"")
    assert "attention.bound" in walk(model).refused
    assert snapshot.differences(as_captured(model, artifact), artifact) == []


def test_a_captured_tensor_with_bytes_is_never_taken_as_empty(model: Model, artifact: Artifact) -> None:
    model.large = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    walked = in_place.as_captured(walk(model), artifact, lambda path: path == "large")
    assert any(line.startswith("large: shape [3]") for line in snapshot.differences(walked, artifact))


def test_equal_bytes_are_no_change(model: Model, artifact: Artifact) -> None:
    serve(model)
    assert in_place.changed(artifact, snapshot.destinations(as_captured(model, artifact))) == []


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, 5 * (4 << 20) - 1])
def test_one_changed_byte_is_named_with_its_piece(model: Model, artifact: Artifact, at: int) -> None:
    flat = model.large.data.view(torch.uint8)
    flat[at] ^= 1
    found = in_place.changed(artifact, snapshot.destinations(as_captured(model, artifact)))
    assert found == [f"large: piece {at // PIECE} of 320, 64 KiB each, is another"]


def test_each_changed_extent_has_a_line(model: Model, artifact: Artifact) -> None:
    model.large.data.view(torch.uint8).fill_(0xFF)
    model.small.data[9] = -1
    found = in_place.changed(artifact, snapshot.destinations(as_captured(model, artifact)))
    assert sorted(line.partition(":")[0] for line in found) == ["large", "small"]
