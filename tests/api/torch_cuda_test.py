"""torch CUDA tensors: the same promises as on the host, and the order of the caller's streams."""

import pathlib

import pytest
import torch

import coldsnap
from coldsnap import _native
from tests.api import helpers
from tests.api.helpers import BACKENDS, KIB, MIB, POISON, SMALL_RING, UNTOUCHED

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason=f"torch {torch.__version__} sees no GPU; the core: {_native.cuda_devices()[1] or 'sees one'}",
)

SIZES = (0, 1, 511, 512, 65535, 65536, 65537, 4 * MIB + 1, 32 * MIB + 5)


def host_tensors() -> dict[str, torch.Tensor]:
    tensors = {f"size.{nbytes}": torch.from_numpy(helpers.random_bytes(nbytes, nbytes)) for nbytes in SIZES}
    tensors["fused"] = torch.from_numpy(helpers.random_bytes(2 * 96 * 64)).view(torch.bfloat16).reshape(96, 64)
    return tensors | {"fused.q": tensors["fused"][:32], "fused.turned": tensors["fused"].t(), "tied": tensors["fused"]}


def destinations() -> dict[str, torch.Tensor]:
    made = {f"size.{n}": torch.full((n,), UNTOUCHED, dtype=torch.uint8, device="cuda") for n in SIZES}
    fused = torch.full((2 * 96 * 64,), UNTOUCHED, dtype=torch.uint8, device="cuda").view(torch.bfloat16).reshape(96, 64)
    return made | {"fused": fused, "fused.q": fused[:32], "fused.turned": fused.t(), "tied": fused}


def every_byte_is(tensors: dict[str, torch.Tensor], value: int) -> bool:
    return all((t.contiguous().reshape(-1).view(torch.uint8) == value).all().item() for t in tensors.values())


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return helpers.write(tmp_path_factory.mktemp("cuda") / "artifact", host_tensors())


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, artifact: pathlib.Path) -> str:
    helpers.needs(request.param, artifact.parent)
    return request.param


@pytest.mark.parametrize("verify", helpers.VERIFY_MODES)
def test_round_trip(artifact: pathlib.Path, backend: str, verify: str) -> None:
    tensors = destinations()
    receipt = coldsnap.hydrate(artifact, tensors, backend=backend, verify=verify, **SMALL_RING)
    for name, tensor in host_tensors().items():
        restored = tensors[name].cpu().contiguous()  # a turned view has no byte view
        assert torch.equal(restored.view(torch.uint8), tensor.contiguous().view(torch.uint8)), name
    assert receipt.machine["gpu"] == torch.cuda.get_device_name()
    assert "cuda_driver" in receipt.versions
    assert receipt.versions["cuda_runtime"] == _native.CUDA_RUNTIME_VERSION


def test_receipts_agree(artifact: pathlib.Path) -> None:
    backends = [b for b in BACKENDS if b != "direct" or not helpers.why_no_direct(artifact.parent)]
    found = [helpers.comparable(coldsnap.hydrate(artifact, destinations(), backend=b)) for b in backends]
    assert all(receipt == found[0] for receipt in found)


def test_one_flipped_bit_poisons_everything(artifact: pathlib.Path, backend: str) -> None:
    with coldsnap.open(artifact) as opened:
        index = opened["size.65537"].extent
        assert index is not None
        offset = opened.extent(index).file_offset + 65536
    blob = helpers.file_of(artifact, "weights.safetensors")
    tensors = destinations()
    helpers.flip_bit(blob, offset)
    try:
        with pytest.raises(coldsnap.DataLossError, match=rf"extent {index} \(size\.65537\).*piece 1 "):
            coldsnap.hydrate(artifact, tensors, backend=backend)
    finally:
        helpers.flip_bit(blob, offset)
    assert every_byte_is(tensors, POISON)


def test_work_that_was_queued_before_comes_before(artifact: pathlib.Path, backend: str) -> None:
    tensors, side = destinations(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # about 0.1 s, and then the write that must not come last
        tensors["size.33554437"].fill_(0)
        receipt = coldsnap.hydrate(artifact, tensors, backend=backend)  # orders itself after the current stream
    torch.cuda.synchronize()
    expected = host_tensors()["size.33554437"]
    assert torch.equal(tensors["size.33554437"].cpu(), expected)
    assert receipt.ok

    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        tensors["size.33554437"].fill_(0)
    coldsnap.hydrate(artifact, tensors, backend=backend, streams=(side, torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    assert torch.equal(tensors["size.33554437"].cpu(), expected)


def test_layouts_that_differ_leave_destinations_alone(artifact: pathlib.Path, backend: str) -> None:
    tensors = destinations() | {"size.512": torch.zeros(512, dtype=torch.uint8)}
    with pytest.raises(coldsnap.LayoutError, match=r"is on cuda:0, but on host: 'size.512'"):
        coldsnap.hydrate(artifact, tensors, backend=backend)
    del tensors["size.512"]
    assert every_byte_is(tensors, UNTOUCHED)


def test_the_host_needs_no_more_than_the_ring(artifact: pathlib.Path) -> None:
    receipt = coldsnap.hydrate(artifact, destinations(), backend="buffered", chunk_bytes=64 * KIB, queue_depth=2)
    assert receipt.settings["queue_depth"]["value"] == 2
