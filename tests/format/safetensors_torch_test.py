"""torch reads the blob through safetensors: every dtype, bit for bit."""

from __future__ import annotations

import pathlib

import pytest
import safetensors
import torch

from coldsnap.tensors import native_specs
from tests.format import helpers

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32),
    *(torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    torch.float4_e2m1fn_x2,
)


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    element_bytes = torch.empty(0, dtype=dtype).element_size()
    count = torch.Size(shape).numel() * element_bytes
    generator = torch.Generator().manual_seed(count)
    data = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 6), (1,), (3, 1, 4), (0, 4)], ids=str)
def test_every_dtype(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: pathlib.Path) -> None:
    tensor = random_tensor(dtype, shape)
    written = helpers.write(tmp_path / "artifact", native_specs({"w": tensor}))
    with safetensors.safe_open(written.blob_path, framework="pt") as file:
        found = file.get_tensor("w")
    assert found.dtype == dtype
    assert found.shape == tensor.shape  # safetensors halves F4's last dimension again
    assert bytes_of(found) == bytes_of(tensor)


def test_every_entry_of_a_model_opens(tmp_path: pathlib.Path) -> None:
    embedding = random_tensor(torch.bfloat16, (1000, 64))
    tensors = {
        "embed.weight": embedding,
        "lm_head.weight": embedding,
        "fused.weight": random_tensor(torch.float32, (96, 64)).t(),
        "fused.part": random_tensor(torch.float32, (10,))[2:5],
        "empty.view": random_tensor(torch.float32, (10,))[10:],
        "scale": torch.tensor(0.5),
        "packed": random_tensor(torch.float4_e2m1fn_x2, (4, 8)),
        "packed.scalar": random_tensor(torch.float4_e2m1fn_x2, (1,)).reshape(()),
        "rotation": random_tensor(torch.complex128, (4,)),
        "__private": torch.ones(3),
        "none": torch.empty(0, 7),
    }
    written = helpers.write(tmp_path / "artifact", native_specs(tensors))
    with safetensors.safe_open(written.blob_path, framework="pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    assert set(found) == set(written.header)
    named = {name for name in found if not name.startswith("__")}
    assert named == {"embed.weight", "scale", "packed", "none"}
    for name in named:
        assert found[name].dtype == tensors[name].dtype
        assert found[name].shape == tensors[name].shape
        assert bytes_of(found[name]) == bytes_of(tensors[name])
    storages = [name for name in found if name.startswith("__storage__.")]
    assert len(storages) == 6
    assert all(found[name].dtype is torch.uint8 for name in storages)
    assert written.row("lm_head.weight")["extent"] == written.row("embed.weight")["extent"]
    assert written.row("lm_head.weight")["objects"] == written.row("embed.weight")["objects"]
    assert written.row("empty.view")["offset"] == 0
