"""Toy models of every hiding place, captured and restored: bit for bit, and every other difference is named."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import coldsnap
from coldsnap.adapters import snapshot
from coldsnap.adapters.walker import NOT_ALLOWED, Walked, walk


class Tagged(torch.nn.Parameter):
    """A subclass as engines have them: it knows how it is loaded."""

    def __new__(cls, data: torch.Tensor, **_: Any) -> Tagged:
        return super().__new__(cls, data, requires_grad=False)

    def __init__(self, data: torch.Tensor, axis: int = 0) -> None:
        self.axis = axis


@dataclasses.dataclass
class Kernel:
    weight: torch.Tensor
    scale: float


class Plain(torch.nn.Module):
    """A module with what its maker hangs on it."""

    def __init__(self, fill: Callable[[Any], None]) -> None:
        super().__init__()
        fill(self)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def registered(m: Any) -> None:
    m.layer = torch.nn.Linear(5, 3)
    m.register_buffer("cache", values(4, 2), persistent=False)
    m.register_buffer("mean", values(3))
    m.frozen = torch.nn.Parameter(values(2), requires_grad=False)
    m.count = torch.nn.Parameter(values(2, dtype=torch.int32), requires_grad=False)
    m.tagged = Tagged(values(2, 2, dtype=torch.bfloat16))


def attributes_and_views(m: Any) -> None:
    m.fused = torch.nn.Parameter(values(6, 4))
    m.q, m.k = m.fused.data[:3], m.fused.data[3:]
    m.turned = m.fused.data.t()
    m.every_second = values(8)[::2]
    m.scalar = torch.tensor(2.5)


def hidden(m: Any) -> None:
    weight = values(3, 3)
    m.kernel = Kernel(values(2), 0.5)
    m.table = {"a": [values(1), (values(2),)]}
    m.run = lambda x: x @ weight
    m.bound = functools.partial(torch.add, values(4), alpha=2)
    m.method = types.MethodType(lambda self: self.weight, Kernel(values(5), 1.5))
    m.layers = [torch.nn.Linear(2, 2)]


def freed(m: Any) -> None:
    m.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
    m.register_parameter("bias", None)
    m.g_idx = torch.nn.Parameter(torch.empty(0, dtype=torch.int32), requires_grad=False)
    packed = values(7, dtype=torch.uint8)
    m.apply_packed = lambda: packed
    m.qzeros = None


def tied(m: Any) -> None:
    m.embedding, m.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False)
    m.head.weight = m.embedding.weight
    m.rotary = torch.nn.Module()
    m.rotary.register_buffer("cos_sin_cache", values(4), persistent=False)
    m.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    for layer in m.layers:
        layer.rotary = m.rotary
    m.same_storage = m.embedding.weight.data  # another object over one storage


def strided(m: Any) -> None:
    m.weight = torch.nn.Parameter(values(4, 3, dtype=torch.float64).t(), requires_grad=False)
    m.padded = torch.nn.Parameter(values(4, 8)[:, :5], requires_grad=False)
    m.repeated = values(3).expand(4, 3)


KINDS = [registered, attributes_and_views, hidden, freed, tied, strided]


def randomise(walked: Walked, seed: int) -> None:
    """Random bits in every storage."""
    generator = torch.Generator().manual_seed(seed)
    for slot in walked.slots.values():
        storage = slot.tensor.untyped_storage()
        raw = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))
        raw.copy_(torch.randint(0, 256, (storage.nbytes(),), dtype=torch.uint8, generator=generator))


def bits(walked: Walked) -> dict[str, bytes]:
    return {path: bytes(slot.tensor.untyped_storage()) for path, slot in walked.slots.items()}


def captured(model: torch.nn.Module, path: pathlib.Path) -> coldsnap.Artifact:
    tensors, roles, attrs, scalars = snapshot.sources(walk(model))
    coldsnap.capture(tensors, path, roles=roles, attrs=attrs, scalars=scalars)
    return coldsnap.open(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_built_alike_gets_every_bit(tmp_path: pathlib.Path, kind: Callable[[Any], None]) -> None:
    source, other = Plain(kind), Plain(kind)
    randomise(walk(source), 1)
    randomise(walk(other), 2)
    with captured(source, tmp_path / "artifact") as artifact:
        assert set(artifact) == set(walk(source).slots)
        assert snapshot.differences(walk(other), artifact) == []
        coldsnap.hydrate(artifact, snapshot.destinations(walk(other)))
        assert bits(walk(other)) == bits(walk(source))
        assert snapshot.differences(walk(other), artifact) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_on_meta_becomes_the_captured_one(tmp_path: pathlib.Path, kind: Callable[[Any], None]) -> None:
    source = Plain(kind)
    randomise(walk(source), 1)
    with torch.device("meta"):
        other = Plain(kind)
    with captured(source, tmp_path / "artifact") as artifact:
        placed = snapshot.materialise(other, artifact, "cpu")
        assert list(placed) == list(artifact)
        coldsnap.hydrate(artifact, placed)
        assert bits(walk(other)) == bits(walk(source))
        assert snapshot.differences(walk(other), artifact) == []


def change_a_float(m: Any) -> None:
    m.kernel.scale = 0.25


def drop_an_attribute(m: Any) -> None:
    del m.kernel.weight


def add_a_buffer(m: Any) -> None:
    m.register_buffer("extra", torch.ones(2))


def other_dtype(m: Any) -> None:
    m.layer.weight.data = m.layer.weight.data.half()


def other_shape(m: Any) -> None:
    m.layer.weight.data = torch.zeros(5, 5)


def other_strides(m: Any) -> None:
    m.layer.weight.data = torch.zeros(5, 3).t()


def copy_of_a_tie(m: Any) -> None:
    m.head.weight = torch.nn.Parameter(m.embedding.weight.data.clone())


def another_object_over_a_tie(m: Any) -> None:
    m.head.weight = torch.nn.Parameter(m.embedding.weight.data)


def unfused(m: Any) -> None:
    m.k = m.k.clone()


def shifted(m: Any) -> None:
    m.k = m.fused.data[2:5]


def larger_storage(m: Any) -> None:
    m.layer.weight.data = torch.zeros(30)[:15].reshape(3, 5)


def learning(m: Any) -> None:
    m.frozen.requires_grad_()


def persistent(m: Any) -> None:
    m.register_buffer("cache", m.cache, persistent=True)


def plain_class(m: Any) -> None:
    m.tagged = torch.nn.Parameter(m.tagged.data, requires_grad=False)


def in_training(m: Any) -> None:
    m.eval()


def another_role(m: Any) -> None:
    mean = m.mean
    del m.mean
    m.mean = mean


def another_kernel(m: Any) -> None:
    m.kernel = types.SimpleNamespace(**vars(m.kernel))


CHANGES: list[tuple[Callable[[Any], None], Callable[[Any], None], str]] = [
    (hidden, change_a_float, 'kernel.scale: value "f64:3fd0000000000000", captured "f64:3fe0000000000000"'),
    (hidden, drop_an_attribute, "kernel.weight: in the artifact, and not in the model"),
    (hidden, another_kernel, f'captured "{__name__}.Kernel"'),
    (registered, add_a_buffer, "extra: not in the artifact"),
    (registered, other_dtype, "layer.weight: dtype F16, captured F32"),
    (registered, other_shape, "layer.weight: shape [5, 5], captured [3, 5]"),
    (registered, other_strides, "layer.weight: strides [1, 3], captured [5, 1]"),
    (registered, larger_storage, "layer.weight: its storage has 120 bytes, captured 60"),
    (registered, learning, "frozen: attrs ['class=torch.nn.parameter.Parameter', 'requires_grad=true'], captured"),
    (registered, persistent, "'persistent=true', 'requires_grad=false'], captured"),
    (registered, plain_class, f"captured ['class={__name__}.Tagged'"),
    (registered, in_training, "training: value false, captured true"),
    (registered, another_role, "mean: role attribute, captured buffer"),
    (tied, copy_of_a_tie, "head.weight: extent "),
    (tied, another_object_over_a_tie, "head.weight: object "),
    (attributes_and_views, unfused, "k: extent "),
    (attributes_and_views, shifted, "k: offset 32, captured 48"),
]


@pytest.mark.parametrize(("kind", "change", "line"), CHANGES, ids=[change.__name__ for _, change, _ in CHANGES])
def test_each_difference_is_named_with_both_values(
    tmp_path: pathlib.Path, kind: Callable[[Any], None], change: Callable[[Any], None], line: str
) -> None:
    other = Plain(kind)
    with captured(Plain(kind), tmp_path / "artifact") as artifact:
        change(other)
        found = snapshot.differences(walk(other), artifact)
        assert any(line in text for text in found), found


def test_what_was_not_entered_is_compared() -> None:
    model = Plain(hidden)
    walked = walk(model, stop=lambda value: isinstance(value, Kernel))
    assert snapshot.sources(walked)[3]["coldsnap.opaque"] == {
        "kernel": f"{__name__}.Kernel",
        "method.__self__": f"{__name__}.Kernel",
    }


def test_a_refusal_names_path_type_and_reason() -> None:
    model = Plain(lambda m: setattr(m, "view", memoryview(b"x")))
    with torch.device("meta"):
        model.forgotten = torch.nn.Linear(2, 3, bias=False)
    message = (
        r"capture 0 tensors of a model: view: builtins.memoryview: its state is native code's, which may hold memory that "
        r"can't be seen; forgotten.weight: a tensor of shape \[3, 2\] on the meta device, and no part"
    )
    with pytest.raises(coldsnap.Error, match=message) as refused:
        snapshot.sources(walk(model))
    assert refused.value.code == "request_invalid"
    assert refused.value.remedy


def with_bases(m: Any) -> None:
    m.register_buffer("cache", values(6))
    m.part = m.cache[2:]
    m.weight = torch.nn.Parameter(values(4, 2), requires_grad=False)
    m.parts = [m.weight[:2], m.weight[2:].t()]


def test_bases_of_views_are_exchanged_after_their_views(tmp_path: pathlib.Path) -> None:
    with captured(Plain(with_bases), tmp_path / "artifact") as artifact:
        with torch.device("meta"):
            model = Plain(with_bases)
        weight = model.weight
        coldsnap.hydrate(artifact, snapshot.materialise(model, artifact, "cpu"))
        assert model.weight is weight
        assert snapshot.differences(walk(model), artifact) == []


def test_what_can_not_be_exchanged_is_replaced_where_modules_hold_it(tmp_path: pathlib.Path) -> None:
    def make(m: Any) -> None:
        m.layer = torch.nn.Linear(3, 2)
        m.kernel = Kernel(m.layer.weight, 0.5)

    with captured(Plain(make), tmp_path / "artifact") as artifact:
        with torch.device("meta"):
            model = Plain(make)
        held = weakref.ref(model.layer.weight)
        placed = snapshot.materialise(model, artifact, "cpu")
        assert sorted(set(artifact) - set(placed)) == ["kernel.weight"]
        assert model.layer.weight is not held()
        assert walk(model).missing == {"kernel.weight": NOT_ALLOWED}
        found = snapshot.differences(walk(model), artifact)
        assert "kernel.weight: in the artifact, and not in the model" in found


def test_what_post_processing_registers_is_registered(tmp_path: pathlib.Path) -> None:
    def finish(m: Any) -> None:
        m.register_buffer("scale", values(3), persistent=False)
        m.packed = torch.nn.Parameter(values(5, dtype=torch.uint8), requires_grad=False)
        mean = m.mean
        del m.mean
        m.mean = mean  # no buffer any more
        m.frozen = torch.nn.Parameter(torch.empty(0), requires_grad=False)

    source = Plain(registered)
    finish(source)
    with captured(source, tmp_path / "artifact") as artifact:
        with torch.device("meta"):
            model = Plain(registered)
        model.tagged.axis = 3
        coldsnap.hydrate(artifact, snapshot.materialise(model, artifact, "cpu"))
        assert snapshot.differences(walk(model), artifact) == []
        assert bits(walk(model)) == bits(walk(source))
        assert list(model.state_dict()) == list(source.state_dict())
        assert type(model.tagged) is Tagged
        assert model.tagged.axis == 3


def test_a_tie_that_the_artifact_does_not_have_is_undone(tmp_path: pathlib.Path) -> None:
    def untied(m: Any) -> None:
        tied(m)
        m.head.weight = torch.nn.Parameter(values(5, 4) + 1)

    source = Plain(untied)
    with captured(source, tmp_path / "artifact") as artifact:
        with torch.device("meta"):
            model = Plain(tied)
        coldsnap.hydrate(artifact, snapshot.materialise(model, artifact, "cpu"))
        assert snapshot.differences(walk(model), artifact) == []
        assert bits(walk(model)) == bits(walk(source))


def test_a_model_without_the_module_or_the_class_is_refused(tmp_path: pathlib.Path) -> None:
    with captured(Plain(registered), tmp_path / "artifact") as artifact:
        with torch.device("meta"):
            model, other = Plain(registered), Plain(registered)
        del model.layer
        with pytest.raises(coldsnap.LayoutError, match=r"layer.bias its memory: .* the model has no module 'layer'"):
            snapshot.materialise(model, artifact, "cpu")
        other.tagged = torch.nn.Parameter(other.tagged.data, requires_grad=False)
        with pytest.raises(
            coldsnap.LayoutError, match=r"tagged its memory: it was a .*Tagged when captured, and the model"
        ):
            snapshot.materialise(other, artifact, "cpu")


def beside_a_gpu(model: torch.nn.Module, *paths: str) -> Walked:
    """As a walk of a model on a GPU finds tensors that stayed in host memory."""
    walked = walk(model)
    for path in paths:
        slot = walked.slots[path]
        walked.slots[path] = dataclasses.replace(slot, attrs=tuple(sorted((*slot.attrs, "device=host"))))
    return walked


def test_small_tensors_beside_a_gpu_stand_in_the_manifest(tmp_path: pathlib.Path) -> None:
    source, other = Plain(attributes_and_views), Plain(attributes_and_views)
    randomise(walk(source), 1)
    randomise(walk(other), 2)
    host = "scalar", "every_second"
    tensors, roles, attrs, scalars = snapshot.sources(beside_a_gpu(source, *host))
    assert set(tensors).isdisjoint(host)
    coldsnap.capture(tensors, tmp_path / "artifact", roles=roles, attrs=attrs, scalars=scalars)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        walked = beside_a_gpu(other, *host)
        assert snapshot.differences(walked, artifact) == []
        coldsnap.hydrate(artifact, snapshot.destinations(walked))
        snapshot.restore_host(walked, artifact)
        for path in host:
            assert same_bits(walked.slots[path].tensor, walk(source).slots[path].tensor), path

        other.scalar = torch.ones(2)
        walked = beside_a_gpu(other, *host)
        assert any(line.startswith("scalar: tensor in host memory") for line in snapshot.differences(walked, artifact))
        with pytest.raises(coldsnap.LayoutError, match="restore tensors in host memory: scalar: "):
            snapshot.restore_host(walked, artifact)

        with torch.device("meta"):
            model = Plain(attributes_and_views)
        snapshot.materialise(model, artifact, "cpu")
        assert same_bits(model.scalar, source.scalar)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)


def test_large_tensors_beside_a_gpu_are_refused() -> None:
    model = Plain(lambda m: setattr(m, "big", torch.zeros(snapshot.HOST_BYTES + 1, dtype=torch.uint8)))
    assert snapshot.problems(beside_a_gpu(model, "big")) == [
        "big: 65537 bytes in host memory beside a model on a GPU, 65537 with all others, and 65536 are the most"
    ]
