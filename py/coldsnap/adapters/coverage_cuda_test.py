"""Walks, captures and the account of memory on a GPU."""

from __future__ import annotations

import pathlib

import pytest
import torch

import coldsnap
from coldsnap import _native
from coldsnap.adapters import coverage, snapshot
from coldsnap.adapters.walker import walk

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason=f"torch {torch.__version__} sees no GPU; the core: {_native.cuda_devices()[1] or 'sees one'}",
)

_HIDDEN: list[torch.Tensor] = []  # a module's global, where no walk comes


class Model(torch.nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1000, 1000, device=device)
        self.run = [self.layer.weight.data.t()]
        self.scale_cpu = torch.tensor(3.0, device="meta" if device == "meta" else "cpu")


def test_memory_that_no_walk_finds_is_in_the_account() -> None:
    before = coverage.held("cuda")
    model = Model("cuda")
    model.layer(torch.ones(8, 1000, device="cuda")).sum().item()  # takes work space
    assert coverage.hidden(before, coverage.held("cuda"), walk(model)) == []
    _HIDDEN.append(torch.ones(2 << 20, device="cuda"))
    found = coverage.hidden(before, coverage.held("cuda"), walk(model))
    assert [rest.nbytes for rest in found] == [8 << 20]
    _HIDDEN.clear()


def test_a_pool_s_blocks_are_those_in_use_of_what_the_driver_gave_it() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        model = Model("cuda")
        _HIDDEN.append(torch.ones(2 << 20, device="cuda"))
    driver = {segment["address"]: segment["total_size"] for segment in pool.snapshot()}
    other = torch.ones(2 << 20, device="cuda")
    held = coverage.within(coverage.held("cuda", driver), driver)
    assert other.data_ptr() not in held
    assert [rest.nbytes for rest in coverage.hidden({}, held, walk(model))] == [8 << 20]
    _HIDDEN.clear()


def test_a_pointer_into_device_memory_is_refused() -> None:
    weight = torch.ones(1000, device="cuda")
    model = torch.nn.Module()
    model.pointers = torch.tensor([weight.data_ptr()], device="cuda")
    assert "an address of this process" in walk(model).refused["pointers"]


def test_a_model_on_meta_becomes_the_captured_one(tmp_path: pathlib.Path) -> None:
    source, empty = Model("cuda"), Model("meta")
    tensors, roles, attrs, scalars = snapshot.sources(walk(source))
    assert set(scalars["coldsnap.host"]) == {"scale_cpu"}
    coldsnap.capture(tensors, tmp_path / "artifact", roles=roles, attrs=attrs, scalars=scalars)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        coldsnap.hydrate(artifact, snapshot.materialise(empty, artifact, "cuda:0"))
        assert snapshot.differences(walk(empty), artifact) == []
    assert torch.equal(empty.layer.weight, source.layer.weight)
    assert empty.run[0].untyped_storage().data_ptr() == empty.layer.weight.data_ptr()
    assert empty.scale_cpu.item() == 3.0
