"""What goes in comes out, byte for byte and whoever moves it."""

import pathlib
from typing import Any

import numpy as np
import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import BACKENDS, KIB, LEAF_BYTES, MIB, SMALL_RING, VERIFY_MODES

EDGES = (0, 1, 511, 512, 513, 65535, 65536, 65537, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1)


def restore_and_compare(folder: pathlib.Path, tensors: dict[str, np.ndarray], **options: Any) -> coldsnap.Receipt:
    helpers.needs(options["backend"], folder)
    artifact = helpers.write(folder / "artifact", tensors)
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, **options)
    helpers.assert_same_bytes(destinations, tensors)
    assert receipt.ok
    assert sum(route["bytes"] for route in receipt.routes) == receipt.payload_bytes
    return receipt


@pytest.mark.parametrize("verify", VERIFY_MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_mixed_tensors(tmp_path: pathlib.Path, backend: str, verify: str) -> None:
    receipt = restore_and_compare(tmp_path, helpers.mixed_tensors(), backend=backend, verify=verify)
    assert receipt.verify == {"mode": verify, "place": "host"}


@pytest.mark.parametrize("nbytes", EDGES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_tensor_at_the_edges(tmp_path: pathlib.Path, backend: str, nbytes: int) -> None:
    receipt = restore_and_compare(tmp_path, {"w": helpers.random_bytes(nbytes)}, backend=backend)
    assert receipt.payload_bytes == nbytes
    assert sum(route["extents"] for route in receipt.routes) == (1 if nbytes else 0)


@pytest.mark.parametrize("nbytes", [64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 3 * 64 * KIB + 512])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_tensor_around_the_chunk(tmp_path: pathlib.Path, backend: str, nbytes: int) -> None:
    restore_and_compare(tmp_path, {"w": helpers.random_bytes(nbytes)}, backend=backend, **SMALL_RING)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_blob_many_times_the_ring(tmp_path: pathlib.Path, backend: str) -> None:
    tensors = {"large": helpers.random_bytes(16 * MIB + 3), "second": helpers.random_bytes(5 * MIB, 8)}
    receipt = restore_and_compare(tmp_path, tensors, backend=backend, **SMALL_RING)
    if backend != "python":
        assert receipt.settings["queue_depth"] == {"value": 2, "source": "explicit"}
        assert receipt.settings["chunk_bytes"] == {"value": 64 * KIB, "source": "explicit"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_extents_than_slots(tmp_path: pathlib.Path, backend: str) -> None:
    tensors = {f"w{index}": helpers.random_bytes(LEAF_BYTES + index, index) for index in range(40)}
    receipt = restore_and_compare(tmp_path, tensors, backend=backend, **SMALL_RING)
    assert sum(route["extents"] for route in receipt.routes) == 40


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_small_ones(tmp_path: pathlib.Path, backend: str) -> None:
    data = helpers.random_bytes(50_000 + 300)
    tensors = {f"w{index}": data[index : index + 1 + index % 300].copy() for index in range(50_000)}
    receipt = restore_and_compare(tmp_path, tensors, backend=backend)
    assert sum(route["extents"] for route in receipt.routes) == 50_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_at_all(tmp_path: pathlib.Path, backend: str) -> None:
    receipt = restore_and_compare(tmp_path, {}, backend=backend)
    assert (receipt.payload_bytes, receipt.bytes_per_second, receipt.routes) == (0, None, [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_of_it(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs(backend, tmp_path)
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    destinations = helpers.untouched_like(tensors)
    named = {name: destinations[name] for name in ("table.row", "size.65537")}
    receipt = coldsnap.hydrate(artifact, named, backend=backend, partial=True)
    assert receipt.payload_bytes == tensors["table"].nbytes + 65537
    helpers.assert_same_bytes(destinations, {name: tensors[name] for name in ("table", "size.65537")})
    others = {name: array for name, array in destinations.items() if not name.startswith(("table", "size.65537"))}
    assert helpers.every_byte_is(others, helpers.UNTOUCHED)


@pytest.mark.parametrize("verify", VERIFY_MODES)
def test_receipts_agree(tmp_path: pathlib.Path, verify: str) -> None:
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    receipts = {}
    for backend in BACKENDS:
        if backend == "direct" and helpers.why_no_direct(tmp_path):
            continue
        receipts[backend] = coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend=backend, verify=verify)
    first = helpers.comparable(receipts["python"])
    for backend, receipt in receipts.items():
        assert helpers.comparable(receipt) == first, backend
        assert receipt.provider == ("python" if backend == "python" else "native")
        assert set(receipt.stages_s) == set(receipts["python"].stages_s)
        own = {name for name in receipt.settings if name.startswith("direct_")}  # the native core's
        assert set(receipt.settings) - own == set(receipts["python"].settings)
        assert sum(route["bytes"] for route in receipt.routes) == receipt.payload_bytes
        assert sum(route["extents"] for route in receipt.routes) == sum(r["extents"] for r in receipts["python"].routes)
        if backend != "auto":
            assert {route["route"] for route in receipt.routes} == {backend}
            assert helpers.codes(receipt)[0] == "explicit"
    assert helpers.codes(receipts["auto"])  # auto always says why


@pytest.mark.parametrize("place", ["host", "device", "both"])
def test_digests_are_computed_where_it_was_asked_for(tmp_path: pathlib.Path, place: str) -> None:
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, backend="buffered", place=place)
    assert receipt.verify == {"mode": "crc32+sha256", "place": place}
    helpers.assert_same_bytes(destinations, tensors)


@pytest.mark.parametrize("place", ["device", "both"])
def test_the_python_provider_has_no_digests_on_the_device(tmp_path: pathlib.Path, place: str) -> None:
    tensors = {"w": helpers.random_bytes(1000)}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    with pytest.raises(coldsnap.RouteUnavailableError, match=f"place {place}: the provider python") as caught:
        coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend="python", place=place)
    assert caught.value.remedy


def test_the_default_is_python_and_says_that_nobody_chose_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("COLDSNAP_HYDRATION_BACKEND", "COLDSNAP_HYDRATION_NATIVE_LIBRARY"):
        monkeypatch.delenv(variable, raising=False)
    tensors = {"w": helpers.random_bytes(1000)}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    receipt = coldsnap.hydrate(artifact, helpers.untouched_like(tensors))
    assert (receipt.provider, helpers.codes(receipt)) == ("python", ["provider_default"])

    monkeypatch.setenv("COLDSNAP_HYDRATION_BACKEND", "buffered")
    receipt = coldsnap.hydrate(artifact, helpers.untouched_like(tensors))
    assert (receipt.provider, receipt.routes[0]["route"]) == ("native", "buffered")
    assert receipt.settings["backend"] == {"value": "buffered", "source": "environment"}


def test_an_artifact_says_what_it_holds(tmp_path: pathlib.Path) -> None:
    tensors = helpers.mixed_tensors()
    path = helpers.write(tmp_path / "artifact", tensors, model="tiny")
    with coldsnap.open(path) as artifact:
        assert set(artifact) == set(tensors)
        assert len(artifact) == len(tensors)
        for name, tensor in tensors.items():
            info = artifact[name]
            assert (info.shape, info.nbytes) == (tensor.shape, tensor.nbytes)
            if info.extent is not None:
                extent = artifact.extent(info.extent)
                assert info.offset + 1 <= extent.nbytes
        assert artifact["table.turned"].strides == (1, 300)
        assert artifact["table.columns"].offset == 80
        assert artifact["table"].extent == artifact["table.row"].extent
        assert artifact["half"].object == artifact["tied"].object != artifact["table"].object
        assert artifact["no.rows"].extent is None
        assert (artifact.identity, artifact.scalars) == ({"model": "tiny"}, {})
        assert (artifact.shard, artifact.shards) == ("shard-00-00-00", ("shard-00-00-00",))
        assert artifact.payload_bytes == sum(extent.nbytes for extent in artifact.extents)
        assert artifact.data_start % LEAF_BYTES == 0
        assert artifact.blob_bytes == helpers.file_of(path, "weights.safetensors").stat().st_size
        assert len(artifact.artifact_root) == 64
        assert artifact.artifact_root[:12] in repr(artifact)
        assert "absent" not in artifact
        with pytest.raises(KeyError):
            artifact["absent"]
    assert "closed" in repr(artifact)
    with pytest.raises(coldsnap.RequestInvalidError, match="closed"):
        coldsnap.hydrate(artifact, helpers.untouched_like(tensors))


def test_equal_tensors_give_equal_artifacts(tmp_path: pathlib.Path) -> None:
    one, other = (helpers.write(tmp_path / name, helpers.mixed_tensors()) for name in ("one", "other"))
    assert coldsnap.open(one).artifact_root == coldsnap.open(other).artifact_root
    for name in ("weights.safetensors", "manifest.json", "leaves.bin"):
        assert helpers.file_of(one, name).read_bytes() == helpers.file_of(other, name).read_bytes()
