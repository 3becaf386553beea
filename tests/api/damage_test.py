"""Wrong bytes never look restored: each kind of damage, by each backend, with what the destinations hold after it."""

import pathlib

import numpy as np
import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import BACKENDS, LEAF_BYTES, POISON, SMALL_RING, UNTOUCHED, VERIFY_MODES


def tensors_of_each_kind() -> dict[str, np.ndarray]:
    """Large and small extents, whole and ragged pieces, an alias."""
    tensors = {
        "large": helpers.random_bytes(3 * LEAF_BYTES + 17, 1),
        "exact": helpers.random_bytes(LEAF_BYTES, 2),
        "small.a": helpers.random_bytes(1, 3),
        "small.b": helpers.random_bytes(513, 4),
    }
    return tensors | {"large.tail": tensors["large"][LEAF_BYTES:]}


EXTENTS = ("exact", "large", "small.a", "small.b")  # smallest names; the order of the blob is the format's affair


@pytest.mark.parametrize("name", EXTENTS)
@pytest.mark.parametrize("verify", VERIFY_MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_flipped_bit(tmp_path: pathlib.Path, backend: str, verify: str, name: str) -> None:
    helpers.needs(backend, tmp_path)
    tensors = tensors_of_each_kind()
    path = helpers.write(tmp_path / "artifact", tensors)
    with coldsnap.open(path) as artifact:
        index = artifact[name].extent
        assert index is not None
        extent = artifact.extent(index)
        for at in {0, extent.nbytes // 2, extent.nbytes - 1}:
            piece = at // LEAF_BYTES
            helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), extent.file_offset + at, bit=at % 8)
            destinations = helpers.untouched_like(tensors)
            with pytest.raises(coldsnap.DataLossError) as caught:
                coldsnap.hydrate(artifact, destinations, backend=backend, verify=verify, **SMALL_RING)
            assert f"extent {index} ({name})" in str(caught.value)
            assert f"piece {piece} " in str(caught.value)
            assert helpers.every_byte_is(destinations, POISON)
            receipt = caught.value.receipt
            assert receipt is not None
            assert not receipt.ok
            assert receipt.error is not None
            assert (receipt.error["code"], receipt.error["stage"]) == ("data_loss", "digest")
            assert receipt.artifact_root == artifact.artifact_root
            helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), extent.file_offset + at, bit=at % 8)
        destinations = helpers.untouched_like(tensors)
        coldsnap.hydrate(artifact, destinations, backend=backend, verify=verify)  # whole again
        helpers.assert_same_bytes(destinations, tensors)


def blind_spot_of_crc32() -> bytes:
    """A change that no CRC-32 sees: its own polynomial, first bit first, as zlib takes the bits of a byte."""
    polynomial = 0x104C11DB7
    return sum(((polynomial >> (32 - bit)) & 1) << bit for bit in range(33)).to_bytes(5, "little")


@pytest.mark.parametrize("backend", BACKENDS)
def test_sha256_sees_what_crc32_cannot(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs(backend, tmp_path)
    tensors = {"w": helpers.random_bytes(2 * LEAF_BYTES)}
    path = helpers.write(tmp_path / "artifact", tensors)
    offset = coldsnap.open(path).extent(0).file_offset + LEAF_BYTES + 100
    for index, byte in enumerate(blind_spot_of_crc32()):
        for bit in range(8):
            if byte >> bit & 1:
                helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), offset + index, bit)

    destinations = helpers.untouched_like(tensors)
    coldsnap.hydrate(path, destinations, backend=backend, verify="crc32")
    assert destinations["w"].tobytes() != tensors["w"].tobytes()  # so verify="crc32" is a choice, not the default
    with pytest.raises(coldsnap.DataLossError, match=r"extent 0 \(w\).*piece 1 "):
        coldsnap.hydrate(path, destinations, backend=backend)
    assert helpers.every_byte_is(destinations, POISON)


@pytest.mark.parametrize("backend", BACKENDS)
def test_damage_outside_of_what_is_asked_for_is_not_in_the_way(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs(backend, tmp_path)
    tensors = tensors_of_each_kind()
    path = helpers.write(tmp_path / "artifact", tensors)
    with coldsnap.open(path) as artifact:
        offset = artifact.extent(artifact["large"].extent or 0).file_offset
    helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), offset)
    destination = helpers.untouched_like({"exact": tensors["exact"]})
    coldsnap.hydrate(path, destination, backend=backend, partial=True)
    helpers.assert_same_bytes(destination, {"exact": tensors["exact"]})


@pytest.mark.parametrize("lost", [1, LEAF_BYTES, "half", "all"])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_short_blob_is_refused_before_the_first_byte(
    tmp_path: pathlib.Path, backend: str, opened: bool, lost: int | str
) -> None:
    helpers.needs(backend, tmp_path)
    tensors = tensors_of_each_kind()
    path = helpers.write(tmp_path / "artifact", tensors)
    blob = helpers.file_of(path, "weights.safetensors")
    size = blob.stat().st_size
    left = {"half": size // 2, "all": 0}.get(str(lost), size - lost if isinstance(lost, int) else 0)
    before = coldsnap.open(path)
    helpers.truncate(blob, left)
    destinations = helpers.untouched_like(tensors)
    with pytest.raises(coldsnap.DataLossError) as caught:
        coldsnap.hydrate(before if opened else path, destinations, backend=backend)
    assert str(left) in str(caught.value)
    assert str(size) in str(caught.value)
    assert helpers.every_byte_is(destinations, UNTOUCHED)


@pytest.mark.parametrize("name", ["artifact.json", "manifest.json", "leaves.bin"])
def test_a_tampered_description_is_refused_on_opening(tmp_path: pathlib.Path, name: str) -> None:
    path = helpers.write(tmp_path / "artifact", tensors_of_each_kind(), model="tiny")
    file = helpers.file_of(path, name)
    size = file.stat().st_size
    # Every byte of artifact.json but those of the account of the capture counts, so this one stays within the roots.
    places = {0, size // 2, size - 1} if name != "artifact.json" else {0, file.read_bytes().index(b'root":"') + 10}
    for at in places:
        for bit in (0, 6):
            helpers.flip_bit(file, at, bit)
            with pytest.raises(coldsnap.Error) as caught:
                coldsnap.open(path)
            assert caught.value.exit_code == 4, str(caught.value)
            helpers.flip_bit(file, at, bit)
    coldsnap.open(path)


def test_a_tampered_header_is_refused_on_opening(tmp_path: pathlib.Path) -> None:
    path = helpers.write(tmp_path / "artifact", tensors_of_each_kind())
    data_start = coldsnap.open(path).data_start
    for at in (0, 8, 20, data_start - 1):
        helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), at)
        with pytest.raises(coldsnap.Error) as caught:
            coldsnap.open(path)
        assert caught.value.exit_code == 4, str(caught.value)
        helpers.flip_bit(helpers.file_of(path, "weights.safetensors"), at)
    coldsnap.open(path)


@pytest.mark.parametrize("name", ["artifact.json", "manifest.json", "leaves.bin", "weights.safetensors"])
def test_a_missing_file_is_named(tmp_path: pathlib.Path, name: str) -> None:
    path = helpers.write(tmp_path / "artifact", tensors_of_each_kind())
    helpers.file_of(path, name).unlink()
    with pytest.raises(coldsnap.Error, match=name):
        coldsnap.open(path)


@pytest.mark.parametrize("name", ["manifest.json", "leaves.bin"])
@pytest.mark.parametrize("change", [-1, 1])
def test_files_of_another_size_are_refused(tmp_path: pathlib.Path, name: str, change: int) -> None:
    path = helpers.write(tmp_path / "artifact", tensors_of_each_kind())
    file = helpers.file_of(path, name)
    helpers.truncate(file, file.stat().st_size + change)
    with pytest.raises(coldsnap.Error) as caught:
        coldsnap.open(path)
    assert caught.value.exit_code == 4


def test_a_link_in_place_of_the_blob_is_not_followed(tmp_path: pathlib.Path) -> None:
    path = helpers.write(tmp_path / "artifact", tensors_of_each_kind())
    blob = helpers.file_of(path, "weights.safetensors")
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(coldsnap.Error, match=r"weights\.safetensors"):
        coldsnap.open(path)


def test_a_directory_that_is_no_artifact(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path, tmp_path / "absent", pathlib.Path(__file__)):
        with pytest.raises(coldsnap.Error) as caught:
            coldsnap.open(path)
        assert str(path) in str(caught.value) or "artifact.json" in str(caught.value)
