"""Tensors from and to files: every type comes back as it was, and a file that is not exactly right is refused."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import coldsnap
from coldsnap import errors, new_file, tensor_files
from coldsnap.artifact import ITEM_BYTES
from coldsnap.destinations import numpy_destinations
from coldsnap.tensors import Typed

WRITABLE = sorted(ITEM_BYTES.keys() - {"F4", "F6_E2M3", "F6_E3M2", "C128"})


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_every_type_comes_back(tmp_path: pathlib.Path) -> None:
    rng, header, data = np.random.default_rng(7), {}, b""
    for dtype in WRITABLE:
        nbytes = 15 * ITEM_BYTES[dtype]
        header[dtype] = entry(dtype, [3, 5], len(data), len(data) + nbytes)
        data += rng.integers(0, 2 if dtype == "BOOL" else 256, nbytes, np.uint8).tobytes()
    (tmp_path / "in.safetensors").write_bytes(file_of({"__metadata__": {"format": "pt"}, **header}, data))

    tensors = tensor_files.read_safetensors([str(tmp_path / "in.safetensors")])
    coldsnap.capture(tensors, tmp_path / "artifact")
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert {name: info.dtype for name, info in artifact.items()} == {dtype: dtype for dtype in WRITABLE}
        restored = numpy_destinations(artifact)
        coldsnap.hydrate(artifact, restored)
        written = tensor_files.write_safetensors(str(tmp_path / "out.safetensors"), artifact, restored)
    raw = (tmp_path / "out.safetensors").read_bytes()
    assert written == len(raw)
    begin = 8 + int.from_bytes(raw[:8], "little")
    found = json.loads(raw[8:begin])
    for dtype in WRITABLE:
        first, end = found[dtype]["data_offsets"]
        assert (found[dtype]["dtype"], found[dtype]["shape"]) == (dtype, [3, 5])
        assert (begin + first) % ITEM_BYTES[dtype] == 0
        before = slice(*header[dtype]["data_offsets"])
        assert raw[begin + first : begin + end] == data[before], dtype
    with safe_open(tmp_path / "out.safetensors", "np") as other:  # the format's own reader
        assert sorted(other.keys()) == WRITABLE


def test_views_are_written_as_what_they_show(tmp_path: pathlib.Path) -> None:
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    tensors = {
        "table": table,
        "turned": table.T,
        "row": table[1],
        "tied": table,
        "one": np.array(7.5),
        "none": table[:0],
    }
    coldsnap.capture(tensors, tmp_path / "artifact")
    with coldsnap.open(tmp_path / "artifact") as artifact:
        restored = numpy_destinations(artifact)
        coldsnap.hydrate(artifact, restored)
        tensor_files.write_safetensors(str(tmp_path / "out.safetensors"), artifact, restored)
    assert restored["tied"] is restored["table"]
    assert np.shares_memory(restored["row"], restored["table"])
    with safe_open(tmp_path / "out.safetensors", "np") as other:
        for name, tensor in tensors.items():
            assert np.array_equal(other.get_tensor(name), tensor), name


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it has 0 bytes, and its header is said to have 0"),
        (b"1234567", "it has 7 bytes"),
        (file_of({}, length=3), "it has 10 bytes, and its header is said to have 3"),
        (file_of({}, length=1 << 63), "and its header is said to have 9223372036854775808"),
        (file_of(b"[]"), r"its header \$ is no object"),
        (file_of(b"{,}"), "Expecting property name"),
        (file_of(b'{"a":1,"a":2}'), "a key stands twice"),
        (file_of({"a": {}}), r"\$\['a'\] has no "),
        (file_of({"a": entry("F31", [1], 0, 4)}, bytes(4)), r"\$\['a'\].dtype is 'F31'"),
        (file_of({"a": entry("F32", [-1], 0, 4)}, bytes(4)), r"shape\[0\] is -1"),
        (file_of({"a": entry("F32", [2], 0, 4)}, bytes(4)), "its 8 bytes should begin at 0"),
        (file_of({"a": entry("F32", [1 << 52, 1 << 52], 0, 4)}, bytes(4)), "should begin at 0"),
        (file_of({"a": entry("F32", [1], 4, 8)}, bytes(8)), r"is at \[4, 8\]"),
        (file_of({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, bytes(3)), "should begin at 2"),
        (file_of({"a": entry("U8", [2], 0, 2)}, bytes(1)), "its tensors end at byte"),
        (file_of({"a": entry("U8", [2], 0, 2)}, bytes(3)), "its tensors end at byte"),
        (file_of({"a": entry("F4", [2], 0, 1)}, bytes(1)), "has the packed type F4"),
    ],
)
def test_a_damaged_safetensors_file(content: bytes, what: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(errors.RequestInvalidError, match=what):
        tensor_files.read_safetensors([str(tmp_path / "a")])


def test_numpy_files(tmp_path: pathlib.Path) -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    np.save(tmp_path / "weights.npy", array)
    np.savez_compressed(tmp_path / "two.npz", a=array, b=array[0])
    (name,) = found = tensor_files.read_numpy(str(tmp_path / "weights.npy"))
    assert name == "weights"
    assert np.array_equal(found[name], array)
    two = tensor_files.read_numpy(str(tmp_path / "two.npz"))
    assert np.array_equal(two["a"], array)
    assert np.array_equal(two["b"], array[0])


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04 no archive", b"pickle?"])
def test_a_damaged_numpy_file(content: bytes, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(errors.RequestInvalidError, match=r"read .*a\.npy: "):
        tensor_files.read_numpy(str(tmp_path / "a.npy"))


def test_python_objects_are_never_loaded(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(errors.RequestInvalidError, match="allow_pickle=False"):
        tensor_files.read_numpy(str(tmp_path / "a.npy"))


@pytest.mark.parametrize("read", [tensor_files.read_numpy, lambda path: tensor_files.read_safetensors([path])])
def test_what_is_no_file(read: Any, tmp_path: pathlib.Path) -> None:
    for path, kind in (("nowhere", errors.RequestInvalidError), (".", errors.RequestInvalidError)):
        with pytest.raises(kind, match="name a file"):
            read(str(tmp_path / path))


def test_what_does_not_fit_is_refused_first(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 20, np.uint8))  # a thousandth of its size
    coldsnap.capture({"a": np.zeros(1 << 20, np.uint8)}, tmp_path / "artifact")
    monkeypatch.setattr(tensor_files, "memory_available", lambda: ((256 << 20) + (1 << 20) - 1, "the test"))
    with pytest.raises(errors.OutOfMemoryError, match="and the test leaves 269484031"):
        tensor_files.read_numpy(str(tmp_path / "a.npz"))
    with (
        coldsnap.open(tmp_path / "artifact") as artifact,
        pytest.raises(errors.OutOfMemoryError, match="allocate destinations for shard-00-00-00"),
    ):
        numpy_destinations(artifact)


def test_a_file_that_cannot_be_finished_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"a": np.arange(5)}
    coldsnap.capture(tensors, tmp_path / "artifact")
    failed = []

    def full(*_: object) -> None:
        failed.append(True)
        raise errors.NoSpaceError("sync out.safetensors: No space left on device")

    with coldsnap.open(tmp_path / "artifact") as artifact:
        with monkeypatch.context() as patch, pytest.raises(errors.NoSpaceError):
            patch.setattr(new_file.NewFile, "finish", full)
            tensor_files.write_safetensors(str(tmp_path / "out.safetensors"), artifact, tensors)
        assert failed
        assert not (tmp_path / "out.safetensors").exists()
        (tmp_path / "out.safetensors").write_bytes(b"somebody's")
        with pytest.raises(errors.ExistsError):
            tensor_files.write_safetensors(str(tmp_path / "out.safetensors"), artifact, tensors)
    assert (tmp_path / "out.safetensors").read_bytes() == b"somebody's"


def test_types_that_no_file_has(tmp_path: pathlib.Path) -> None:
    tensors = {"c": np.zeros(3, np.complex128)}
    coldsnap.capture(tensors, tmp_path / "artifact")
    with (
        coldsnap.open(tmp_path / "artifact") as artifact,
        pytest.raises(errors.RequestInvalidError, match="'c' has the type C128"),
    ):
        tensor_files.write_safetensors(str(tmp_path / "out.safetensors"), artifact, tensors)
    assert not (tmp_path / "out.safetensors").exists()


def test_a_typed_array_is_of_its_width() -> None:
    with pytest.raises(errors.RequestInvalidError, match="its array is of U8, and is to be BF16"):
        coldsnap.capture({"a": Typed(np.zeros(3, np.uint8), "BF16")}, "never")


def told(read: Any) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    read(lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    return steps


def test_reading_safetensors_tells_how_far_it_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "_READ_BYTES", 1000)
    data = bytes(5000)
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(file_of({path.name: entry("U8", [5000], 0, 5000)}, data))
    total = sum(path.stat().st_size for path in paths)
    steps = told(lambda progress: tensor_files.read_safetensors([str(path) for path in paths], progress))
    assert len({done for done, _ in steps}) >= 10
    assert {all_of_it for _, all_of_it in steps} == {total}
    assert steps[-1] == (total, total)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "packed.npz"])
def test_reading_numpy_tells_how_far_it_is(name: str, tmp_path: pathlib.Path) -> None:
    array = np.random.default_rng(7).integers(0, 256, 2_000_000, np.uint8)
    write = {"a.npy": np.save, "a.npz": np.savez, "packed.npz": np.savez_compressed}[name]
    write(tmp_path / name, array)
    total = (tmp_path / name).stat().st_size
    steps = told(lambda progress: tensor_files.read_numpy(str(tmp_path / name), progress))
    assert len({done for done, _ in steps}) >= 5
    assert steps[-1] == (total, total)
    (found,) = tensor_files.read_numpy(str(tmp_path / name)).values()
    assert (found == array).all()
