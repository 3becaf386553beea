"""Where tensors hide in toy modules: each is found under its path, or refused with path, type and reason."""

from __future__ import annotations

import enum
import functools
import itertools
import os
import pathlib
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from coldsnap.adapters.walker import NOT_ALLOWED, Walked, walk


def holding(**held: Any) -> torch.nn.Module:
    """A module without weights that has these attributes."""
    module = torch.nn.Module()
    for name, value in held.items():
        module.__dict__[name] = value
    return module


class Slotted:
    __slots__ = ("__hidden", "never_assigned", "weight")

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.__hidden = weight + 1


class Kernel:
    """An object of an engine."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def apply(self, scale: torch.Tensor) -> torch.Tensor:
        return self.weight * scale

    @property
    def costly(self) -> None:
        raise AssertionError("a walk runs nothing of what it meets")


def closing_over(weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: weight * 2


def default(x: int, weight: torch.Tensor, *, scale: torch.Tensor) -> None: ...


def with_defaults(weight: torch.Tensor) -> Callable[..., None]:
    function = types.FunctionType(default.__code__, {}, "default", (weight,))
    function.__kwdefaults__ = {"scale": weight + 1}
    function.extra = weight + 2  # type: ignore[attr-defined]
    return function


class Wrapper(torch.Tensor):
    """As TorchAO has them: no memory of its own, and a tensor inside."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.inner if isinstance(arg, Wrapper) else arg for arg in args]
        found = function(*plain, **(kwargs or {}))
        wrapped = Wrapper(found) if isinstance(found, torch.Tensor) else found
        return return_and_correct_aliasing(function, args, kwargs or {}, wrapped)


class LeftOut(torch.nn.Module):
    """Stands where a part is left out, as vLLM's StageMissingLayer does: the part is in ``__dict__``, on meta."""

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.__dict__["part"] = part


def test_registered_tensors_have_their_roles_and_flags() -> None:
    model = torch.nn.BatchNorm1d(3)
    model.register_buffer("cache", torch.ones(2), persistent=False)
    model.register_parameter("freed", None)
    walked = walk(model)
    assert {path: slot.role for path, slot in walked.slots.items()} == {
        "weight": "parameter",
        "bias": "parameter",
        "running_mean": "buffer",
        "running_var": "buffer",
        "num_batches_tracked": "buffer",
        "cache": "buffer",
    }
    assert walked.slots["weight"].attrs == ("class=torch.nn.parameter.Parameter", "requires_grad=true")
    assert "persistent=false" in walked.slots["cache"].attrs
    assert "persistent=true" in walked.slots["running_mean"].attrs
    assert walked.scalars["freed"] is None
    assert walked.scalars["eps"] == model.eps
    assert walked.scalars["training"] is True


WEIGHT = torch.arange(4.0)
HIDING: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "attribute": (lambda: WEIGHT, ["x"]),
    "list": (lambda: [1, [WEIGHT]], ["x[1][0]"]),
    "tuple": (lambda: (WEIGHT,), ["x[0]"]),
    "dict": (lambda: {"k": WEIGHT, 3: WEIGHT, ("a", 1): WEIGHT}, ["x['k']", "x[('a', 1)]", "x[3]"]),
    "keyed by an object": (lambda: {object: WEIGHT, Slotted(WEIGHT): WEIGHT + 1}, None),  # type: ignore[dict-item]
    "mapping proxy": (lambda: types.MappingProxyType({"k": WEIGHT}), ["x['k']"]),
    "object": (lambda: Kernel(WEIGHT), ["x.weight"]),
    "slots": (lambda: Slotted(WEIGHT), ["x._Slotted__hidden", "x.weight"]),
    "closure": (lambda: closing_over(WEIGHT), ["x.closure[0]"]),
    "compiled function": (
        lambda: torch.compile(closing_over(WEIGHT), backend="eager"),
        ["x._torchdynamo_orig_callable.closure[0]"],
    ),
    "partial": (
        lambda: functools.partial(torch.add, WEIGHT, other=WEIGHT),
        ["x.args[0]", "x.keywords['other']"],
    ),
    "method": (lambda: Kernel(WEIGHT).apply, ["x.__self__.weight"]),
    "method of a tensor": (lambda: WEIGHT.add_, ["x.__self__"]),
    "defaults": (lambda: with_defaults(WEIGHT), ["x.defaults[0]", "x.extra", "x.kwdefaults['scale']"]),
    "namespace": (lambda: types.SimpleNamespace(w=WEIGHT), ["x.w"]),
    "module in a list": (lambda: [torch.nn.Linear(2, 2)], ["x[0].bias", "x[0].weight"]),
    "a tensor's own attributes": (lambda: _with_scale(WEIGHT.clone()), ["x", "x.scale"]),
}
HIDING["keyed by an object"] = (
    HIDING["keyed by an object"][0],
    [*("x.key[0]._Slotted__hidden", "x.key[0].weight", "x.value[0]", "x[builtins.object]")],
)


def _with_scale(tensor: torch.Tensor) -> torch.Tensor:
    tensor.scale = torch.ones(1)  # type: ignore[attr-defined]
    tensor.loader = "of a tensor, only other tensors are of interest"  # type: ignore[attr-defined]
    tensor.lock = threading.Lock()  # type: ignore[attr-defined]
    return tensor


@pytest.mark.parametrize("place", HIDING)
def test_hidden_tensors_are_found(place: str) -> None:
    make, paths = HIDING[place]
    walked = walk(holding(x=make()))
    assert sorted(walked.slots) == sorted(paths)
    assert not walked.refused
    assert "x.loader" not in walked.scalars
    assert "x.lock" not in walked.opaque


def test_every_name_of_a_shared_module_is_a_path() -> None:
    rotary = torch.nn.Linear(2, 2, bias=False)
    rotary.cache = torch.ones(3)
    model = torch.nn.ModuleList([rotary, rotary])
    assert list(walk(model).slots) == ["0.weight", "0.cache", "1.weight", "1.cache"]
    assert walk(model).slots["0.weight"].tensor is walk(model).slots["1.weight"].tensor


def test_an_object_is_entered_once_and_cycles_end() -> None:
    kernel = Kernel(WEIGHT)
    kernel.again = kernel  # type: ignore[attr-defined]
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    model.__dict__.update(a=kernel, b=[kernel], c=model[0])
    walked = walk(model)
    assert walked.scalars["a.again"] == walked.scalars["b[0]"] == {"same": "a"}
    assert walked.scalars["c"] == {"same": "0"}
    assert sorted(walked.slots) == ["0.bias", "0.weight", "a.weight"]
    model[0].add_module("parent", model)
    assert walk(model).scalars["0.parent"] == {"same": ""}


class Mode(enum.Enum):
    FAST = 1


def test_scalars_keep_value_and_kind() -> None:
    digest = "8:"
    held = {
        "scale": 0.1,
        "count": 3,
        "flag": True,
        "mode": Mode.FAST,
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:3"),
        "shape": torch.Size([2, 3]),
        "kind": Kernel,
        "function": with_defaults,
        "names": {"b", "a"},
        "table": np.arange(2, dtype=np.float32),
        "long": "x" * 300,
        "bad": "\ud800",
        "path": pathlib.Path("a/b"),
        "vocabulary": {str(number): number for number in range(300)},
    }
    scalars = walk(holding(**held)).scalars
    assert scalars["scale"] == 0.1
    assert scalars["mode"] == {"enum": f"{__name__}.Mode.FAST"}
    assert scalars["dtype"] == {"torch": "torch.bfloat16"}
    assert scalars["device"] == {"device": "cuda"}
    assert scalars["shape"] == [2, 3]
    assert scalars["path"] == {"path": "a/b"}
    assert scalars["kind"] == {"type": f"{__name__}.Kernel"}
    assert scalars["function.__class__"] == f"builtins.function {__name__}.with_defaults"
    assert (scalars["names[0]"], scalars["names[1]"]) == ("'a'", "'b'")
    assert scalars["table"]["numpy"].startswith(f"<f4[2]:{digest}")
    assert scalars["long"]["text"].startswith("300:")
    assert scalars["bad"] == "\\ud800"
    assert len(scalars["vocabulary"]["dict"]) == 2


def test_weak_references_own_nothing_and_what_they_key_is_found() -> None:
    kernel, gone = Kernel(WEIGHT), Kernel(WEIGHT)
    table = weakref.WeakKeyDictionary({kernel: WEIGHT})
    dead = weakref.proxy(gone)
    del gone
    walked = walk(holding(ref=weakref.ref(kernel), dead=dead, table=table, count=itertools.count(3)))
    assert list(walked.slots) == ["table.data.value[0]"]
    assert not walked.refused


def test_stopped_skipped_and_process_local_objects_are_named() -> None:
    kernel = Kernel(WEIGHT)
    model = holding(config=kernel, handle=torch.zeros(1, dtype=torch.int64), lock=threading.Lock(), keep=[kernel])
    walked = walk(
        model,
        stop=lambda value: isinstance(value, Kernel),
        skip=lambda path, value: path.endswith("handle"),
    )
    assert walked.opaque == {
        "config": f"{__name__}.Kernel",
        "handle": "torch.Tensor",
        "lock": "_thread.lock",
        "keep[0]": f"{__name__}.Kernel",
    }
    assert not walked.slots
    assert not walked.refused


class Compiled(torch.nn.Module):
    """Holds what torch.compile made of its code, as vLLM's models do that are built for it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.compiled = torch.compile(self.forward, backend="eager", dynamic=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given * self.weight


def test_a_compiled_function_is_walked_as_what_it_was_made_of() -> None:
    model = Compiled()
    for _ in range(2):  # before it was called for the first time, and after
        walked = walk(model)
        assert (list(walked.slots), walked.refused, walked.opaque) == (["weight"], {}, {})
        assert model.compiled(torch.full((3,), 2.0)).tolist() == [2.0, 2.0, 2.0]


def test_parts_that_are_left_out_may_be_on_meta() -> None:
    with torch.device("meta"):
        tower, forgotten = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    model = torch.nn.ModuleDict({"tower": LeftOut(tower), "forgotten": forgotten})
    walked = walk(model, stop=lambda value: isinstance(value, LeftOut))
    assert walked.missing == {"tower.part.weight": f"tower ({__name__}.LeftOut)", "forgotten.weight": NOT_ALLOWED}
    assert not walked.slots


def _generator(weight: torch.Tensor) -> Any:
    yield weight


@functools.lru_cache
def cached(number: int) -> torch.Tensor:
    return torch.ones(number)


cached(2)
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "wrapper subclass": (
        lambda: Wrapper(WEIGHT),
        "x",
        "walker_test.Wrapper: it is a tensor subclass that wraps others",
    ),
    "pointer": (
        lambda: torch.tensor([7, WEIGHT.data_ptr()]),
        "x",
        f"torch.Tensor: it holds {WEIGHT.data_ptr():#x}, an address of this process",
    ),
    "pointer in a list": (lambda: [1, WEIGHT.data_ptr()], "x", f"{WEIGHT.data_ptr():#x} is an address of this process"),
    "native object": (lambda: memoryview(b"x"), "x", "builtins.memoryview: its state is native code's"),
    "native object with a dict": (lambda: _NativeChild(b"x"), "x", "_NativeChild: its state is native code's"),
    "sparse": (lambda: WEIGHT.to_sparse(), "x", "its layout is torch.sparse_coo"),
    "conjugate": (lambda: torch.ones(2, dtype=torch.complex64).conj(), "x", "conjugate view"),
    "lazy": (lambda: torch.nn.LazyLinear(3), "x.weight", "it was never initialised"),
    "iterator": (lambda: iter([WEIGHT]), "x.ref[0][0]", "has no order"),
    "generator": (lambda: _generator(WEIGHT), "x.ref[", "has no order"),
    "cache": (lambda: cached, "x.ref[", "has no order"),
    "set": (lambda: {WEIGHT}, "x[0]", "has no order"),
    "path": (lambda: {"\0": 1, "k" * 5000: WEIGHT}, "x['kkk", "its path is no name"),
    "deep": (lambda: functools.reduce(lambda inner, _: [inner], range(70), WEIGHT), "x[0][0][0]", "64 other objects"),
    "script": (lambda: torch.jit.ScriptModule(), "x", "native code's"),
}


class _NativeChild(threading.local):
    """Its base keeps a dict for each thread, natively."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@pytest.mark.parametrize("kind", REFUSED)
def test_what_can_not_be_captured_is_refused_by_name(kind: str) -> None:
    make, path, why = REFUSED[kind]
    refused = walk(holding(x=make())).refused
    assert any(found.startswith(path) and why in text for found, text in refused.items()), refused


def test_two_tensors_of_one_path_are_refused() -> None:
    model = torch.nn.Linear(1, 1)
    setattr(model, "a.b", WEIGHT)
    model.a = types.SimpleNamespace(b=WEIGHT)
    assert walk(model).refused == {"a.b": "torch.Tensor: another tensor has this path"}
    model = torch.nn.Linear(1, 1)
    model.__dict__["weight"] = WEIGHT
    assert "__dict__['weight']" in walk(model).slots


def test_nothing_is_changed() -> None:
    model = torch.nn.Linear(2, 2)
    before = dict(vars(model))
    walked = walk(model)
    assert isinstance(walked, Walked)
    assert vars(model) == before
    assert "weight" in walked.slots


_ELSEWHERE = """
import json, pathlib, threading, types, torch
from coldsnap.adapters.walker import walk
class Named:
    def __init__(self, name): self.name = name
    def __hash__(self): return hash(self.name)
model = torch.nn.Linear(2, 2)
model.names = {f"name {number}" for number in range(50)}
model.kinds = frozenset((int, str, torch.Tensor, dict))
model.folder = pathlib.Path("a/b")
hash(model.folder)
model.table = {object(): torch.ones(2), "k": [torch.ones(1)], torch.float16: 1.5}
model.run, model.lock = (lambda: model), threading.Lock()
model.objects = types.SimpleNamespace(b=1, a={Named(f"name {number}") for number in range(9)})
walked = walk(model)
print(json.dumps([list(walked.slots), walked.scalars, walked.opaque, walked.refused]))
"""


def test_another_process_finds_the_same_paths_and_values() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _ELSEWHERE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1, found
    assert "table.value[0]" in found.pop()
