"""Destinations of torch: laid out as what was captured, and written as what they hold. On the processor, for want of a GPU."""

from __future__ import annotations

import json
import pathlib

import pytest
import torch
from safetensors.torch import load_file

import coldsnap
from coldsnap import destinations, errors, operations, tensor_files
from coldsnap.request_schema import Request

TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def models() -> dict[str, torch.Tensor]:
    found = {
        str(dtype): torch.arange(16 * dtype.itemsize, dtype=torch.uint8).remainder(2).view(dtype).reshape(4, 4)
        for dtype in TYPES
    }
    table = torch.arange(12.0).reshape(3, 4)
    return found | {"table": table, "turned": table.T, "tied": table, "one": torch.tensor(7.5), "none": table[:0]}


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))


def test_they_are_laid_out_as_what_was_captured(tmp_path: pathlib.Path) -> None:
    tensors = models()
    coldsnap.capture(tensors, tmp_path / "artifact")
    with coldsnap.open(tmp_path / "artifact") as artifact:
        restored = destinations.torch_destinations(artifact, "cpu")
        assert coldsnap.hydrate(artifact, restored).ok
        path = str(tmp_path / "out.safetensors")
        tensor_files.write_safetensors(path, artifact, operations._on_host(restored))
    assert restored["tied"] is restored["table"]
    assert restored["turned"].untyped_storage().data_ptr() == restored["table"].untyped_storage().data_ptr()
    written = load_file(path)
    for name, tensor in tensors.items():
        assert (restored[name].dtype, restored[name].stride()) == (tensor.dtype, tensor.stride())
        assert same_bytes(restored[name], tensor), name
        assert (written[name].dtype, written[name].shape) == (tensor.dtype, tensor.shape)
        assert same_bytes(written[name], tensor), name


def test_no_device_is_said_as_such(tmp_path: pathlib.Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    coldsnap.capture({"a": torch.ones(3)}, tmp_path / "artifact")
    request = Request("hydrate", {"path": str(tmp_path / "artifact"), "device": "cuda:0"})
    with pytest.raises(errors.RouteUnavailableError, match="allocate destinations on cuda:0: ") as failure:
        operations.run(request, lambda done, total: None)
    assert failure.value.receipt is not None
    assert json.loads(failure.value.receipt.to_json())["operation"] == "hydrate"
