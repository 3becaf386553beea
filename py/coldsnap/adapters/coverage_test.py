"""The account of memory: what is in use after a load and no walked tensor explains."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coldsnap.adapters import coverage
from coldsnap.adapters.coverage import Hidden
from coldsnap.adapters.walker import walk

MIB = 1 << 20


def model_of(*tensors: torch.Tensor) -> torch.nn.Module:
    model = torch.nn.Module()
    model.tensors = list(tensors)
    return model


def block_of(tensor: torch.Tensor, nbytes: int | None = None) -> dict[int, int]:
    storage = tensor.untyped_storage()
    return {storage.data_ptr(): storage.nbytes() if nbytes is None else nbytes}


def test_walked_storages_explain_their_blocks() -> None:
    weight, cache = torch.zeros(MIB), torch.zeros(100, dtype=torch.uint8)
    after = block_of(weight) | block_of(cache, 512)  # the allocator rounds up
    assert coverage.hidden({}, after, walk(model_of(weight[5:], cache))) == []


def test_what_nobody_holds_is_named_largest_first() -> None:
    weight, packed, old = torch.zeros(MIB), torch.zeros(2 * MIB), torch.zeros(3 * MIB)
    after = block_of(weight) | block_of(packed) | block_of(old)
    found = coverage.hidden(block_of(old), after, walk(model_of()))
    assert found == [Hidden(packed.data_ptr(), 8 * MIB), Hidden(weight.data_ptr(), 4 * MIB)]
    assert coverage.hidden(block_of(old), after, walk(model_of(weight, packed))) == []


def test_a_block_is_explained_as_far_as_storages_reach() -> None:
    block = torch.zeros(8 * MIB, dtype=torch.uint8)
    address, parts = block.data_ptr(), memoryview(block.numpy())
    views = [torch.frombuffer(parts[at : at + MIB], dtype=torch.uint8) for at in (MIB, 2 * MIB, 5 * MIB)]
    found = coverage.hidden({}, {address: 8 * MIB}, walk(model_of(*views)))
    assert found == [
        Hidden(address + 3 * MIB, 2 * MIB),
        Hidden(address + 6 * MIB, 2 * MIB),
        Hidden(address, MIB),
    ]


def test_a_block_that_another_has_taken_counts_as_new() -> None:
    block = torch.zeros(MIB)
    assert coverage.hidden(block_of(block, 100), block_of(block), walk(model_of())) == [
        Hidden(block.data_ptr(), 4 * MIB)
    ]


def test_blocks_in_use_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def block(state: str, size: int, requested: int) -> dict[str, Any]:
        return {"state": state, "size": size, "requested_size": requested}

    segments = [
        {
            "device": 0,
            "address": 4096,
            "blocks": [
                block("active_allocated", 1024, 1000),
                block("inactive", 512, 0),
                block("active_allocated", 8, 8),
            ],
        },
        {"device": 1, "address": 9999, "blocks": [block("active_allocated", 512, 512)]},
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    assert coverage.held("cuda:0", {7: 70}) == {7: 70, 4096: 1000, 4096 + 1536: 8}
    assert coverage.held("cuda") == {9999: 512}
    assert coverage.held("cpu", {7: 70}) == {7: 70}


def test_what_an_allocator_gave_to_torch_is_in_use_as_far_as_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [{"state": "inactive", "size": 2 * MIB, "requested_size": 0}]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"device": 0, "address": 4096, "blocks": free}])
    assert coverage.held("cuda:0", {4096: 2 * MIB, 8 * MIB: 100}) == {8 * MIB: 100}


def test_blocks_of_a_pool_are_those_that_begin_in_its_ranges() -> None:
    ranges = {4096: 1000, 8192: 1000}
    blocks = {4095: 1, 4096: 10, 5095: 1, 5096: 1, 8500: 500, 9192: 1}
    assert coverage.within(blocks, ranges) == {4096: 10, 5095: 1, 8500: 500}
    assert coverage.within(blocks, {}) == {}


def test_bytes_vanish_when_weights_are_packed_where_no_tensor_has_them() -> None:
    model = torch.nn.Linear(1000, 100, bias=False)
    model.same = model.weight.data  # counts once
    loaded = walk(model)
    model.packed = bytes(model.weight.detach().numpy())
    model.weight = torch.nn.Parameter(torch.empty(0))
    del model.same
    assert coverage.vanished_bytes(loaded, walk(model)) == 400_000
    model.packed = None
    model.grown = torch.zeros(200_000)
    assert coverage.vanished_bytes(loaded, walk(model)) == 0
