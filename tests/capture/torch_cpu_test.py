"""Captures of torch tensors in host memory, and of what speaks DLPack."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

import coldsnap
from coldsnap import sources
from tests.capture import helpers

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32),
    *(torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float4_e2m1fn_x2),
)


def random_tensor(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    nbytes = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    data = helpers.random_bytes(nbytes, seed)
    return torch.from_numpy(data & 1 if dtype is torch.bool else data).view(dtype).reshape(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    if tensor.element_size() == 1:  # torch can't copy its packed F4
        tensor = torch.empty(0, dtype=torch.uint8).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def every_dtype() -> dict[str, torch.Tensor]:
    """Each type as a table, turned, as a part, without dimensions and without elements."""
    found = {}
    for number, dtype in enumerate(DTYPES):
        table = random_tensor(dtype, 300, 70, seed=number)
        name = str(dtype)
        found |= {f"{name}.table": table, f"{name}.turned": table.t(), f"{name}.part": table[3:5, ::2]}
        found |= {f"{name}.scalar": random_tensor(dtype, 1, seed=number).reshape(()), f"{name}.none": table[:0]}
    return found


def test_every_dtype_by_every_backend(tmp_path: pathlib.Path) -> None:
    tensors = every_dtype()
    for backend in helpers.BACKENDS:
        coldsnap.capture(tensors, tmp_path / backend, backend=backend)
        assert helpers.files_of(tmp_path / backend) == helpers.files_of(tmp_path / "python"), backend

    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors.values()}
    copies = {address: storage.clone().fill_(0x55) for address, storage in storages.items()}
    found = {}
    for name, tensor in tensors.items():
        like = torch.empty(0, dtype=tensor.dtype)
        copy = copies[tensor.untyped_storage().data_ptr()]
        found[name] = like.set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
    coldsnap.hydrate(tmp_path / "direct", found)
    for name, tensor in tensors.items():
        assert bytes_of(found[name]) == bytes_of(tensor), name


def test_safetensors_gives_torch_the_same_tensors(tmp_path: pathlib.Path) -> None:
    tensors = every_dtype()
    coldsnap.capture(tensors, tmp_path / "artifact")
    blob = tmp_path / "artifact" / "shard-00-00-00" / "weights.safetensors"
    with safetensors.safe_open(blob, framework="pt") as file:
        named = [name for name in file.keys() if not name.startswith("__")]  # noqa: SIM118  # no mapping
        # Tables and scalars, but none of complex128 and no scalar of F4; the others are views of tables.
        assert len(named) == 2 * (len(DTYPES) - 1) - 1
        for name in named:
            found = file.get_tensor(name)
            assert (found.dtype, found.shape) == (tensors[name].dtype, tensors[name].shape)
            assert bytes_of(found) == bytes_of(tensors[name])


def test_tied_parameters_are_one_object(tmp_path: pathlib.Path) -> None:
    weight = torch.nn.Parameter(torch.randn(64, 32))
    same_memory = weight.data
    coldsnap.capture({"embed": weight, "head": weight, "view": same_memory}, tmp_path / "artifact")
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact["embed"].object == artifact["head"].object != artifact["view"].object
        assert {info.extent for info in artifact.values()} == {0}


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.randn(4, dtype=torch.complex64).conj(), "conjugate view"),
        (torch.randn(4, dtype=torch.complex64).conj().imag, "negative view"),
        (torch.empty(4, device="meta"), "meta device"),
        (torch.eye(3).to_sparse(), "its layout is"),
    ],
)
def test_what_has_no_plain_memory_is_refused(tensor: torch.Tensor, why: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=why):
        coldsnap.capture({"w": tensor}, tmp_path / "artifact")
    assert helpers.names_in(tmp_path) == []


class Foreign:
    """Somebody else's tensor, which says where it is by DLPack alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **more: Any) -> Any:
        return self._tensor.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def test_dlpack(tmp_path: pathlib.Path) -> None:
    owner = random_tensor(torch.bfloat16, 100, 30)
    whole, part = Foreign(owner), Foreign(owner[10:20, ::3])
    receipt = coldsnap.capture({"a": whole, "b": whole, "part": part}, tmp_path / "artifact")
    assert receipt.payload_bytes == 6000  # one extent, since their memory overlaps
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact["a"].object == artifact["b"].object
        assert (artifact["part"].offset, artifact["part"].strides) == (600, (30, 3))
    blob = tmp_path / "artifact" / "shard-00-00-00" / "weights.safetensors"
    with safetensors.safe_open(blob, framework="pt") as file:
        assert bytes_of(file.get_tensor("a")) == bytes_of(owner)


def test_dlpack_that_fails_is_refused(tmp_path: pathlib.Path) -> None:
    needs_grad = Foreign(torch.ones(3, requires_grad=True))
    with pytest.raises(coldsnap.RequestInvalidError, match=r"'w'.*Foreign.*DLPack"):
        coldsnap.capture({"w": needs_grad}, tmp_path / "artifact")
    assert helpers.names_in(tmp_path) == []


def test_numpy_and_torch_side_by_side(tmp_path: pathlib.Path) -> None:
    array = np.arange(1000, dtype=np.int64)
    receipt = coldsnap.capture({"numpy": array, "torch": torch.from_numpy(array)[10:]}, tmp_path / "artifact")
    assert receipt.payload_bytes == 8000
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact["torch"].offset == 80


def test_tensors_of_two_devices_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sources.views_of

    def elsewhere(tensors: Any) -> Any:
        views = real(tensors)
        return views | {"b": views["b"]._replace(device="cuda:0")}

    monkeypatch.setattr(sources, "views_of", elsewhere)
    with pytest.raises(coldsnap.RequestInvalidError, match="'a' is on host and 'b' on cuda:0"):
        coldsnap.capture({"a": torch.ones(3), "b": torch.ones(4)}, tmp_path / "artifact")
    assert helpers.names_in(tmp_path) == []
