"""Where tensors hide in toy modules: each is found under its path, or refused with path, type and reason."""

from __future__ import annotations

import torch

from coldsnap.adapters.walker import walk


def test_registered_tensors_have_their_roles_and_flags() -> None:
    model = torch.nn.BatchNorm1d(3)
    model.register_buffer("cache", torch.ones(2), persistent=False)
    slots = walk(model).slots
    assert {path: slot.role for path, slot in slots.items()} == {
        "weight": "parameter",
        "bias": "parameter",
        "running_mean": "buffer",
        "running_var": "buffer",
        "num_batches_tracked": "buffer",
        "cache": "buffer",
    }
    assert slots["weight"].attrs == ("class=torch.nn.parameter.Parameter", "requires_grad=true")
    assert "persistent=false" in slots["cache"].attrs
    assert "persistent=true" in slots["running_mean"].attrs
