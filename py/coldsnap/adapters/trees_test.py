"""Random module trees: whatever is walked and captured comes back, bit for bit and laid out as it was."""

from __future__ import annotations

import functools
import pathlib
import tempfile
import types
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st

import coldsnap
from coldsnap.adapters import snapshot
from coldsnap.adapters.walker import Walked, walk

DTYPES = (torch.float32, torch.bfloat16, torch.uint8, torch.int32, torch.float64, torch.bool, torch.float8_e4m3fn)
SHAPES = ((), (0,), (1,), (3, 4), (2, 1, 5), (0, 3), (17, 31), (130, 130))
PLACES = ("parameter", "buffer", "fleeting", "attribute", "list", "dict", "object", "closure", "partial", "nested")
VIEWS = ("same", "data", "turned", "part", "steps", "expanded")
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)

# What to do, one step after the other; numbers choose among the modules and tensors that are there.
_NUMBER = st.integers(0, 99)
STEPS = st.lists(
    st.tuples(st.just("tensor"), _NUMBER, st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.sampled_from(PLACES))
    | st.tuples(st.just("view"), _NUMBER, _NUMBER, st.sampled_from(VIEWS), st.sampled_from(PLACES))
    | st.tuples(st.just("module"), _NUMBER)
    | st.tuples(st.just("shared"), _NUMBER, _NUMBER)
    | st.tuples(st.just("value"), _NUMBER, VALUES),
    max_size=25,
)


def build(steps: list[tuple[Any, ...]]) -> torch.nn.Module:
    """The tree of some steps; the same steps give equal trees."""
    modules, tensors = [torch.nn.Module()], [torch.zeros(2)]
    for index, (step, number, *rest) in enumerate(steps):
        at, name = number % len(modules), f"n{index}"
        if step == "tensor":
            tensors.append(torch.zeros(rest[1], dtype=rest[0]))
            tensors.append(hold(modules[at], name, tensors[-1], rest[2]))
        elif step == "view":
            tensors.append(hold(modules[at], name, view_of(tensors[rest[0] % len(tensors)], rest[1]), rest[2]))
        elif step == "module":
            modules.append(torch.nn.Module())
            modules[at].add_module(name, modules[-1])
        elif step == "shared":
            later = at + rest[0] % (len(modules) - at)  # of a module made before or itself there would be no end
            if later > at:
                modules[at].add_module(name, modules[later])
        else:
            setattr(modules[at], name, rest[0])
    return modules[0]


def view_of(tensor: torch.Tensor, how: str) -> torch.Tensor:
    plain = tensor.data
    if how == "same" or tensor.numel() == 0 or tensor.dim() == 0:
        return tensor
    made = {
        "data": lambda: plain,
        "turned": lambda: plain.transpose(0, -1),
        "part": lambda: plain[1:],
        "steps": lambda: plain[::2],
        "expanded": lambda: plain[:1].expand(3, *plain.shape[1:]),
    }
    return made[how]()


def hold(module: Any, name: str, tensor: torch.Tensor, place: str) -> torch.Tensor:
    """Let a module hold a tensor; what it holds, which may be a parameter made of it."""
    if place == "parameter":
        kept = tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor, requires_grad=False)
        module.register_parameter(name, kept)
        return kept
    if place in ("buffer", "fleeting"):
        module.register_buffer(name, tensor, persistent=place == "buffer")
        return tensor
    holders: dict[str, Any] = {
        "attribute": lambda: tensor,
        "list": lambda: [0.5, tensor],
        "dict": lambda: {"a": tensor, 1: None},
        "object": lambda: types.SimpleNamespace(tensor=tensor, scale=1.5),
        "closure": lambda: lambda: tensor,
        "partial": lambda: functools.partial(torch.add, tensor, alpha=3),
        "nested": lambda: types.SimpleNamespace(run=functools.partial(map, lambda: [tensor])),
    }
    module.__dict__[name] = holders[place]()
    return tensor


def randomise(walked: Walked, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for slot in walked.slots.values():
        storage = slot.tensor.untyped_storage()
        raw = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))
        most = 2 if slot.tensor.dtype is torch.bool else 256
        raw.copy_(torch.randint(0, most, (storage.nbytes(),), dtype=torch.uint8, generator=generator))


def bits(walked: Walked) -> dict[str, bytes]:
    return {path: bytes(slot.tensor.untyped_storage()) for path, slot in walked.slots.items()}


@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)
@hypothesis.given(STEPS)
def test_every_tree_comes_back(steps: list[tuple[Any, ...]]) -> None:
    source, alike = build(steps), build(steps)
    with torch.device("meta"):
        empty = build(steps)
    randomise(walk(source), 1)
    randomise(walk(alike), 2)
    tensors, roles, attrs, scalars = snapshot.sources(walk(source))
    with tempfile.TemporaryDirectory() as folder:
        coldsnap.capture(tensors, pathlib.Path(folder) / "a", roles=roles, attrs=attrs, scalars=scalars)
        with coldsnap.open(pathlib.Path(folder) / "a") as artifact:
            assert snapshot.differences(walk(alike), artifact) == []
            coldsnap.hydrate(artifact, snapshot.destinations(walk(alike)))
            coldsnap.hydrate(artifact, snapshot.materialise(empty, artifact, "cpu"))
            for model in (alike, empty):
                assert snapshot.differences(walk(model), artifact) == []
                assert bits(walk(model)) == bits(walk(source))
