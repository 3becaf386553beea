"""What is refused before the first byte leaves every destination as it was."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import BACKENDS, MIB, UNTOUCHED, Tensors


def source() -> Tensors:
    table = helpers.random_bytes(6 * 8 * 4, 1).view(np.float32).reshape(6, 8)
    return {"table": table, "table.half": table[3:], "w": helpers.random_bytes(700_000, 2)}


def _of(value: int, shape: Any, dtype: Any) -> np.ndarray:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(nbytes, value, np.uint8).view(dtype).reshape(shape)


def _swap(name: str, shape: Any, dtype: Any) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: _of(UNTOUCHED, shape, dtype)})


def _overlap(tensors: Tensors) -> None:
    joint = _of(UNTOUCHED, 700_000, np.uint8)
    table = joint[:192].view(np.float32).reshape(6, 8)
    tensors.update({"w": joint, "table": table, "table.half": table[3:]})


def _read_only(tensors: Tensors) -> None:
    tensors["w"].flags.writeable = False


LAYOUTS: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "missing": (lambda tensors: tensors.pop("w"), "no destination for 'w'"),
    "extra": (_swap("other", 5, np.uint8), "not in the artifact: 'other'"),
    "dtype": (_swap("w", 700_000, np.int8), "'w' has dtype I8, captured U8"),
    "shape": (_swap("w", 700_001, np.uint8), r"'w' has shape \[700001\], captured \[700000\]"),
    "dimensions": (_swap("w", (700, 1000), np.uint8), r"'w' has shape \[700, 1000\], captured \[700000\]"),
    "strides": (lambda tensors: tensors.update(w=_of(UNTOUCHED, 1_400_000, np.uint8)[::2]), r"'w' has strides \[2\]"),
    "not aliased": (_swap("table.half", (3, 8), np.float32), "'table' and 'table.half' share memory in extent"),
    "aliased": (_overlap, "share 192 bytes"),
}


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_layouts_that_differ(tmp_path: pathlib.Path, backend: str, kind: str) -> None:
    change, text = LAYOUTS[kind]
    artifact = helpers.write(tmp_path / "artifact", source())
    destinations = helpers.untouched_like(source())
    change(destinations)
    with pytest.raises(coldsnap.LayoutError, match=text) as caught:
        coldsnap.hydrate(artifact, destinations, backend=backend)
    assert helpers.every_byte_is(destinations, UNTOUCHED)
    assert caught.value.receipt is not None
    assert caught.value.receipt.artifact_root == coldsnap.open(artifact).artifact_root


def test_a_part_in_too_small_a_storage(tmp_path: pathlib.Path) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    alone = {"table.half": _of(UNTOUCHED, (3, 8), np.float32)}
    with pytest.raises(coldsnap.LayoutError, match=r"192 bytes, 96 of them before 'table.half'"):
        coldsnap.hydrate(artifact, alone, partial=True)
    assert helpers.every_byte_is(alone, UNTOUCHED)


@pytest.mark.parametrize("backend", BACKENDS)
def test_read_only_destinations(tmp_path: pathlib.Path, backend: str) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    destinations = helpers.untouched_like(source())
    _read_only(destinations)
    with pytest.raises(coldsnap.RequestInvalidError, match="read-only: 'w'"):
        coldsnap.hydrate(artifact, destinations, backend=backend)
    assert helpers.every_byte_is(destinations, UNTOUCHED)


@pytest.mark.parametrize(
    "arguments",
    [
        {"backend": "Direct"},
        {"backend": 1},
        {"verify": "sha256"},
        {"verify": True},
        {"place": "gpu"},
        {"chunk_bytes": 0},
        {"chunk_bytes": 65535},
        {"chunk_bytes": "4MB"},
        {"chunk_bytes": 4096.0},
        {"queue_depth": 0},
        {"queue_depth": 65},
        {"queue_depth": 2.0},
        {"read_threads": 0},
        {"read_threads": 1 << 20},
        {"chunk_bytes": 64 * MIB, "queue_depth": 9},
        {"chunk_bytes": 1 << 40},
        {"streams": (1,)},
        {"streams": 7},
        {"streams": ("7",)},
        {"partial": None},
        {"partial": 1},
        {"progress": "yes"},
        {"cancel": True},
    ],
    ids=str,
)
def test_wrong_arguments(tmp_path: pathlib.Path, arguments: dict[str, Any]) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    destinations = helpers.untouched_like(source())
    with pytest.raises(coldsnap.RequestInvalidError) as caught:
        coldsnap.hydrate(artifact, destinations, **({"backend": "buffered"} | arguments))
    assert helpers.every_byte_is(destinations, UNTOUCHED)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert caught.value.receipt is not None
    assert not caught.value.receipt.ok


@pytest.mark.parametrize(
    "tensors",
    [
        None,
        7,
        [np.zeros(1)],
        {"table": None},
        {"table": [1.0]},
        {1: np.zeros(1)},
        {"table": np.zeros((6, 8), ">f4")},
        {"table": np.zeros((6, 8), object)},
        {"table": np.zeros((6, 8), "U1")},
        {"table": np.float32(1)},
    ],
    ids=repr,
)
def test_wrong_tensors(tmp_path: pathlib.Path, tensors: Any) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    with pytest.raises(coldsnap.RequestInvalidError):
        coldsnap.hydrate(artifact, tensors, partial=True)


def test_less_verification_needs_a_marker(tmp_path: pathlib.Path) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    with pytest.raises(coldsnap.NotAdmittedError, match="verify --admit"):
        coldsnap.hydrate(artifact, helpers.untouched_like(source()), backend="auto", verify="none")
    with pytest.raises(coldsnap.RouteUnavailableError, match="always compares digests"):
        coldsnap.hydrate(artifact, helpers.untouched_like(source()), verify="none")


@pytest.mark.parametrize("place", ["device", "both"])
def test_digests_on_the_device_are_not_in_this_version(tmp_path: pathlib.Path, place: str) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    with pytest.raises(coldsnap.RouteUnavailableError, match=place):
        coldsnap.hydrate(artifact, helpers.untouched_like(source()), place=place)


def test_a_shard_that_is_not_there(tmp_path: pathlib.Path) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    assert coldsnap.open(artifact, shard="shard-00-00-00").shard == "shard-00-00-00"
    with pytest.raises(coldsnap.RequestInvalidError, match="shard-00-01-00"):
        coldsnap.open(artifact, shard="shard-00-01-00")


def test_a_chunk_alone_makes_a_ring_that_fits(tmp_path: pathlib.Path) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    destinations = helpers.untouched_like(source())
    receipt = coldsnap.hydrate(artifact, destinations, backend="buffered", chunk_bytes="64MiB", read_threads=16)
    helpers.assert_same_bytes(destinations, source())
    assert receipt.settings["queue_depth"] == {"value": 8, "source": "default"}
    assert "pinned_cap" in helpers.codes(receipt)


def test_python_says_which_settings_it_has_no_use_for(tmp_path: pathlib.Path) -> None:
    artifact = helpers.write(tmp_path / "artifact", source())
    receipt = coldsnap.hydrate(artifact, helpers.untouched_like(source()), backend="python", queue_depth=4)
    assert helpers.codes(receipt) == ["explicit", "setting_unused"]
