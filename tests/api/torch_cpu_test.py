"""torch tensors in CPU memory: every type, views and ties, and what has no plain memory."""

import contextlib
import pathlib
from typing import Any

import numpy as np
import pytest
import torch

import coldsnap
from coldsnap import layout, python_provider
from coldsnap.tensors import view_of, views_of
from tests.api import helpers
from tests.api.helpers import BACKENDS, POISON, UNTOUCHED

DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float4_e2m1fn_x2: "F4",
    torch.complex64: "C64",
    torch.complex128: "C128",
}


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    width = torch.empty(0, dtype=dtype).element_size()
    data = helpers.random_bytes(int(np.prod(shape)) * width, seed)
    if dtype is torch.bool:
        data &= 1
    return torch.from_numpy(data).view(dtype).reshape(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.untyped_storage())


def filled_like(tensor: torch.Tensor, value: int) -> torch.Tensor:
    """A tensor in a storage of its own, as large as the given one's, every byte ``value``."""
    storage = torch.UntypedStorage(tensor.untyped_storage().nbytes()).fill_(value)
    return torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def test_dtypes_as_safetensors_names_them() -> None:
    for dtype, name in DTYPES.items():
        view = view_of("w", random_tensor((2, 4), dtype))
        assert view.dtype == name
        assert view.nbytes == 8 * torch.empty(0, dtype=dtype).element_size()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_dtype_comes_back(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs(backend, tmp_path)
    tensors = {name: random_tensor((3, 4), dtype, seed) for seed, (dtype, name) in enumerate(DTYPES.items())}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    destinations = {name: filled_like(tensor, UNTOUCHED) for name, tensor in tensors.items()}
    coldsnap.hydrate(artifact, destinations, backend=backend)
    for name, tensor in tensors.items():
        assert bytes_of(destinations[name]) == bytes_of(tensor), name


def test_numpy_takes_what_it_lacks_as_unsigned_integers(tmp_path: pathlib.Path) -> None:
    lacking = {name: dtype for dtype, name in DTYPES.items() if name == "BF16" or name.startswith(("F8", "F4"))}
    tensors = {name: random_tensor((3, 4), dtype, seed) for seed, (name, dtype) in enumerate(lacking.items())}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    destinations = {name: np.zeros((3, 4), np.uint16 if name == "BF16" else np.uint8) for name in tensors}
    coldsnap.hydrate(artifact, destinations)
    for name, tensor in tensors.items():
        assert destinations[name].tobytes() == bytes_of(tensor), name

    wrong = {"BF16": torch.zeros((3, 4), dtype=torch.uint16)}
    with pytest.raises(coldsnap.LayoutError, match="'BF16' has dtype U16, captured BF16"):
        coldsnap.hydrate(artifact, wrong, partial=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_ties_of_a_module(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs(backend, tmp_path)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            fused = torch.nn.Parameter(torch.randn(3 * 32, 16))
            self.fused = fused
            self.q, self.k, self.v = (fused.data[at : at + 32] for at in (0, 32, 64))
            self.head = torch.nn.Linear(16, 50, bias=False)
            self.embedding = torch.nn.Embedding(50, 16)
            self.embedding.weight = self.head.weight  # tied
            self.turned = torch.randn(7, 9).t()
            self.scalar = torch.tensor(3.5)
            self.empty = torch.empty(0, 4)

        def tensors(self) -> dict[str, torch.Tensor]:
            plain = ("q", "k", "v", "turned", "scalar", "empty")
            tied = dict(self.named_parameters(remove_duplicate=False))
            return tied | {name: getattr(self, name) for name in plain}

    source, destination = Model(), Model()
    artifact = helpers.write(tmp_path / "artifact", source.tensors())
    receipt = coldsnap.hydrate(artifact, destination.tensors(), backend=backend)
    for name, tensor in source.tensors().items():
        assert torch.equal(tensor, destination.tensors()[name]), name
    assert receipt.payload_bytes == 4 * (3 * 32 * 16 + 50 * 16 + 63 + 1)
    assert receipt.versions["torch"] == torch.__version__

    untied = destination.tensors() | {"embedding.weight": torch.zeros(50, 16)}
    with pytest.raises(coldsnap.LayoutError, match=r"'head\.weight' and 'embedding\.weight'|'embedding\.weight' and"):
        coldsnap.hydrate(artifact, untied, backend=backend)


def test_a_restore_that_fails_poisons_to_nan(tmp_path: pathlib.Path) -> None:
    tensors = {"w": torch.randn(5, 7).to(torch.bfloat16)}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    offset = coldsnap.open(artifact).extent(0).file_offset
    helpers.flip_bit(helpers.file_of(artifact, "weights.safetensors"), offset + 3)
    for backend in ("python", "buffered"):
        destination = filled_like(tensors["w"], UNTOUCHED)
        with pytest.raises(coldsnap.DataLossError):
            coldsnap.hydrate(artifact, {"w": destination}, backend=backend)
        assert set(bytes_of(destination)) == {POISON}
        assert destination.isnan().all()


class StagedOnTheHost(python_provider.CudaMemory):
    """What the Python provider does for CUDA tensors, over CPU tensors: there is no stream to wait for."""

    def ordered(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def finish(self) -> None:
        pass


def test_staging_writes_the_storages_behind_the_views(tmp_path: pathlib.Path) -> None:
    fused = torch.from_numpy(helpers.random_bytes(4 * 100_000)).view(torch.float32)
    tensors = {"a": fused[1000:50_000], "b": fused[50_000:].reshape(-1, 100).t(), "c": torch.arange(7)}
    artifact = coldsnap.open(helpers.write(tmp_path / "artifact", tensors))
    blank = filled_like(fused, UNTOUCHED)
    destinations = {"a": blank[1000:50_000], "b": blank[50_000:].reshape(-1, 100).t(), "c": torch.zeros(7).long()}
    ranges = layout.match(artifact, views_of(destinations), False)
    memory = StagedOnTheHost(destinations.values(), "cpu", 65536, ())
    memory.check(ranges)

    def restore(stop: bool) -> None:
        python_provider.hydrate(
            artifact,
            ranges,
            memory,
            verify="crc32+sha256",
            chunk_bytes=65536,
            tick=lambda done, total: stop and done > 0,
            stages_s={},
        )

    restore(stop=False)
    assert bytes_of(blank) == bytes_of(fused)
    assert torch.equal(destinations["c"], tensors["c"])

    with pytest.raises(coldsnap.Cancelled):
        restore(stop=True)
    assert set(bytes_of(blank)) == set(bytes_of(destinations["c"])) == {POISON}

    extent, address, nbytes = ranges[0]
    with pytest.raises(coldsnap.RouteUnavailableError, match="no single torch storage"):
        memory.check([(extent, address + 1, nbytes)])


def _no_memory() -> dict[str, Any]:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> "Wrapper":
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError(func)

    return {
        "meta": torch.empty(3, device="meta"),
        "sparse": torch.zeros(3, 3).to_sparse(),
        "compressed": torch.zeros(3, 3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
        "conjugate": torch.zeros(3, dtype=torch.complex64).conj(),
        "negative": torch.zeros(3, dtype=torch.complex64).conj().imag,
        "nested": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        "wrapper": Wrapper(torch.zeros(3)),
    }


@pytest.mark.filterwarnings("ignore")  # torch's own about prototypes
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("meta", "meta device"),
        ("sparse", "layout is torch.sparse_coo"),
        ("compressed", "layout is torch.sparse_csr"),
        ("quantized", "quantized"),
        ("conjugate", "conjugate view"),
        ("negative", "negative view"),
        ("nested", "layout"),
        ("wrapper", "Wrapper"),
    ],
)
def test_what_has_no_plain_memory_is_refused_by_name(kind: str, why: str) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=why) as caught:
        view_of("model.w", _no_memory()[kind])
    assert "'model.w'" in str(caught.value)
    assert caught.value.remedy
