"""A plugin of vLLM's that only these tests install: layers keep tensors wherever engines are known to hide them.

Like an engine's, they are made without values by a layer's constructor and get them from the checkpoint when the model is
loaded. Each layer adds all of them to what it says, so a restore that leaves one out gives other tokens. `VARIABLE` has
the kinds, with commas: ``tensors``; ``float``, a value of Python's that only loading sets; ``native``, what a walk can't
look into.
"""

from __future__ import annotations

import array
import functools
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "COLDSNAP_TEST_HIDDEN"
# Places in a layer, in the order of the rows of its first weight that they get their values from.
PLACES = (
    "hidden_buffer",
    "hidden_attribute",
    "hidden_list[0]",
    "hidden_list[1]['of']",
    "hidden_kernel.tensor",
    "hidden_closure.closure[0]",
    "hidden_fused",
)
# More names of the same memory: another name of one object; a part, a turned view.
ALIAS, PART, TURNED = "hidden_alias", "hidden_part", "hidden_turned"
PLACEHOLDER, FLOAT, ARRAY, POINTER = "hidden_placeholder", "hidden_float", "hidden_array", "hidden_pointer"
FLAG = "has_own_lm_head"  # of a model; which of those with a draft that have a head of their own say it
_MARK = "_coldsnap_test_hidden"


class Kernel:
    """An object of an engine's with a tensor of its own."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def register() -> None:
    """Called by vLLM in each of its processes."""
    kinds = os.environ.get(VARIABLE, "").split(",")
    if kinds == [""]:
        return
    from vllm.model_executor.models import qwen3

    layer, model = qwen3.Qwen3MLP, qwen3.Qwen3ForCausalLM
    if hasattr(layer, _MARK):
        return
    setattr(layer, _MARK, True)
    _after(layer, "__init__", lambda self, _: _hide(self, kinds))
    _after(layer, "forward", lambda self, said: said + sum(_hidden(self)))
    _after(model, "__init__", lambda self, _: setattr(self, FLAG, False))
    _after(model, "load_weights", lambda self, loaded: _fill(self, loaded, kinds))


def _after(kind: type, name: str, then: Callable[[Any, Any], Any]) -> None:
    """Have ``then`` make what a method returns out of what it did."""
    before = getattr(kind, name)

    @functools.wraps(before)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return then(self, before(self, *arguments, **named))

    setattr(kind, name, method)


def _hide(layer: Any, kinds: list[str]) -> None:
    import torch

    wide = layer.down_proj.output_size
    layer.register_buffer("hidden_buffer", torch.empty(wide), persistent=False)
    layer.hidden_attribute = torch.empty(wide)
    layer.hidden_list = [torch.empty(wide), {"of": torch.empty(wide)}]
    layer.hidden_kernel = Kernel(torch.empty(wide))
    layer.hidden_closure = _closure(torch.empty(wide))
    layer.hidden_fused = torch.empty(2, wide)
    layer.hidden_alias = layer.hidden_kernel.tensor
    layer.hidden_part = layer.hidden_fused[1]
    layer.hidden_turned = layer.hidden_fused.t()
    layer.hidden_placeholder = torch.empty(0)
    if "float" in kinds:
        layer.hidden_float = 0.0
    if "native" in kinds:
        layer.hidden_array = array.array("f", [1.0])
        layer.hidden_pointer = torch.tensor([layer.hidden_list[0].data_ptr()])


def _closure(tensor: Any) -> Callable[[], Any]:
    return lambda: tensor


def _hidden(layer: Any) -> list[Any]:
    """Of a layer, a row of values at each of `PLACES`, and another through each view."""
    return [
        layer.hidden_buffer,
        layer.hidden_attribute,
        layer.hidden_list[0],
        layer.hidden_list[1]["of"],
        layer.hidden_kernel.tensor,
        layer.hidden_closure(),
        layer.hidden_turned[:, 0],
        layer.hidden_part,
    ]


def _fill(model: Any, loaded: Any, kinds: list[str]) -> Any:
    setattr(model, FLAG, True)
    for each in model.model.layers:
        layer = each.mlp
        for row, tensor in enumerate(_hidden(layer)):
            tensor.copy_(layer.gate_up_proj.weight.data[row])
        if "float" in kinds:
            layer.hidden_float = float(layer.gate_up_proj.weight.data[0, 0])
    return loaded
