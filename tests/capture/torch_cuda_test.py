"""Captures of torch tensors in the memory of a GPU, by every backend."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import torch

import coldsnap
from coldsnap import _native
from tests.capture import helpers

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason=f"torch {torch.__version__} sees no GPU; the core: {_native.cuda_devices()[1] or 'sees one'}",
)

SIZES = (1, 511, 512, 65535, 65536, 65537, (4 << 20) + 1, (32 << 20) + 5)


def host_tensors() -> dict[str, torch.Tensor]:
    tensors = {f"size.{nbytes}": torch.from_numpy(helpers.random_bytes(nbytes, nbytes)) for nbytes in SIZES}
    fused = torch.from_numpy(helpers.random_bytes(2 * 96 * 640)).view(torch.bfloat16).reshape(96, 640)
    return tensors | {"fused": fused, "fused.q": fused[:32], "turned": fused.t(), "tied": fused, "none": fused[:0]}


def on_device(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in device memory that share it as ``tensors`` do."""
    copies: dict[int, Any] = {}
    found = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        copy = copies.setdefault(storage.data_ptr(), storage.cuda())
        like = torch.empty(0, dtype=tensor.dtype, device="cuda")
        found[name] = like.set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
    return found


def test_device_and_host_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    host = host_tensors()
    device = on_device(host)
    host["tied"], device["tied"] = host["fused"], device["fused"]
    coldsnap.capture(host, tmp_path / "host", backend="python")
    expected = helpers.files_of(tmp_path / "host")
    for backend in helpers.BACKENDS:
        for place in ("auto", "host") if backend == "python" else ("auto", "host", "device", "both"):
            path = tmp_path / f"{backend}-{place}"
            receipt = coldsnap.capture(device, path, backend=backend, place=place)
            assert receipt.machine["gpu"] == torch.cuda.get_device_name()
            best = "host" if backend == "python" else "device"
            assert receipt.verify["place"] == (best if place == "auto" else place)
            assert helpers.files_of(path) == expected, path.name


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_there_and_back(backend: str, tmp_path: pathlib.Path) -> None:
    host = host_tensors()
    coldsnap.capture(on_device(host), tmp_path / "artifact", backend=backend, preverified=True)
    found = on_device(host)
    for tensor in found.values():
        tensor.untyped_storage().fill_(0x55)
    coldsnap.hydrate(tmp_path / "artifact", found, backend="auto", verify="none")
    for name, tensor in host.items():
        restored = found[name].cpu().contiguous().view(torch.uint8)
        assert torch.equal(restored, tensor.contiguous().view(torch.uint8)), name


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_what_is_queued_on_the_current_stream_comes_first(backend: str, tmp_path: pathlib.Path) -> None:
    tensor = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)  # device cycles, about 0.1 s
        tensor.fill_(7)
        coldsnap.capture({"w": tensor}, tmp_path / "artifact", backend=backend)
    found = np.zeros(8 << 20, np.uint8)
    coldsnap.hydrate(tmp_path / "artifact", {"w": found})
    assert (found == 7).all()


class Foreign:
    """Somebody else's tensor, which says where it is by the CUDA array interface alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.keep = tensor
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__, stream=1)


def test_the_cuda_array_interface(tmp_path: pathlib.Path) -> None:
    tensor = torch.arange(10_000, dtype=torch.float32, device="cuda")
    receipt = coldsnap.capture({"w": Foreign(tensor)}, tmp_path / "artifact", backend="auto")
    assert receipt.payload_bytes == 40_000
    found = np.zeros(10_000, np.float32)
    coldsnap.hydrate(tmp_path / "artifact", {"w": found})
    assert (found == np.arange(10_000)).all()


def test_host_and_device_in_one_capture_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match="'a' is on host and 'b' on cuda:0"):
        coldsnap.capture({"a": torch.ones(3), "b": torch.ones(3, device="cuda")}, tmp_path / "artifact")
    assert helpers.names_in(tmp_path) == []
