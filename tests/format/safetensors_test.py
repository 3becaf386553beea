"""Whatever is captured, the blob is a safetensors file, and every digest is what zlib and hashlib say."""

from __future__ import annotations

import hashlib
import json
import pathlib
import tempfile
import zlib

import hypothesis
import numpy as np
import pytest
import safetensors
from hypothesis import strategies as st

from coldsnap.tensors import native_specs
from tests.format import helpers

NUMPY_DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
SIZES = (0, 1, 2, 7, 511, 512, 513, 8191, 65535, 65536, 65537, 131072)  # elements: their bytes straddle every edge
NAMES = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12
) | st.sampled_from(["__pad__.0", "__storage__.0", "__metadata__", "__group__.0", "a", "a.b", "\U0001f600", "\uffff"])


@st.composite
def arrays(draw: st.DrawFn) -> list[np.ndarray]:
    """Some views of one buffer: the whole of it or not, strided, turned, empty, of no dimension, the same twice."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES)))
    size = draw(st.sampled_from(SIZES))
    base = np.random.default_rng(size).integers(0, 2 if dtype.kind == "b" else 256, size * dtype.itemsize, np.uint8)
    base = base.view(dtype)
    views = [base, base[::3], base[: size // 2], base[size // 3 : size // 3], base[-1:].reshape(())] if size else [base]
    for rows in (2, 7, 512):
        if size % rows == 0:
            table = base.reshape(rows, -1)
            views += [table, table.T, table[:, :1], table[np.newaxis, :, np.newaxis]]
    count = draw(st.integers(1, 4))
    return [draw(st.sampled_from(views)) for _ in range(count)]


@st.composite
def named_arrays(draw: st.DrawFn) -> dict[str, np.ndarray]:
    found = [array for some in draw(st.lists(arrays(), max_size=6)) for array in some]
    names = draw(st.lists(NAMES, min_size=len(found), max_size=len(found), unique=True))
    return dict(zip(names, found, strict=True))


def memory_of(written: helpers.Written, name: str, dtype: np.dtype) -> np.ndarray:
    """The tensor that the manifest describes, over the bytes of the blob."""
    row = written.row(name)
    data = b"" if row["extent"] is None else written.extents[row["extent"]]
    strides = [stride * dtype.itemsize for stride in row["strides"]]
    return np.ndarray(row["shapes"], dtype, data, row["offset"], strides)


def check_header(written: helpers.Written) -> None:
    """Contiguous, ascending, whole, and with zeros in every gap."""
    data_start = written.manifest["data_start"]
    assert data_start % 65536 == 0
    assert int.from_bytes(written.blob[:8], "little") == data_start - 8
    assert set(written.blob[written.blob.rindex(b"}", 0, data_start) + 1 : data_start]) <= {0x20}
    at = 0
    for name, entry in written.header.items():
        assert entry.begin == at
        at = entry.end
        if name.startswith("__pad__."):
            assert not any(written.data_of(entry))
    assert data_start + at == len(written.blob) == written.manifest["blob_bytes"]
    pads = [name for name in written.header if name.startswith("__pad__.")]
    assert pads == [f"__pad__.{number}" for number in range(len(pads))]


def check_digests(written: helpers.Written) -> None:
    columns = written.manifest["extents"]
    leaves = [helpers.leaves_of(extent) for extent in written.extents]
    assert columns["crc32"] == [f"{zlib.crc32(extent):08x}" for extent in written.extents]
    assert columns["sha256t"] == [hashlib.sha256(found).hexdigest() for found in leaves]
    assert written.leaves == b"".join(leaves)
    assert written.manifest["leaves_sha256"] == hashlib.sha256(written.leaves).hexdigest()
    header = written.blob[: written.manifest["data_start"]]
    assert written.manifest["header_sha256"] == hashlib.sha256(header).hexdigest()


def check_safetensors(written: helpers.Written, tensors: dict[str, np.ndarray]) -> None:
    header = written.header
    with safetensors.safe_open(written.blob_path, framework="numpy") as file:
        assert set(file.keys()) == set(header)
        assert file.metadata() == {"format": "pt", "coldsnap.format": "1"}
        for name, entry in header.items():
            found = file.get_tensor(name)
            if name.startswith("__"):
                assert found.tobytes() == written.data_of(entry)
                continue
            assert found.dtype == tensors[name].dtype
            assert found.shape == tensors[name].shape
            assert found.tobytes() == tensors[name].tobytes()
    # Whoever has memory of its own, whole and in order, and the smallest name, is named.
    owners = [name for name, array in tensors.items() if array.base is None and not name.startswith("__")]
    for name in owners:
        assert name in header or tensors[name].dtype == np.complex128 or tensors[name].size == 0


@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(named_arrays())
def test_any_arrays(tensors: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = helpers.write(pathlib.Path(folder, "first"), native_specs(tensors))
        check_header(written)
        check_digests(written)
        check_safetensors(written, tensors)
        for name, array in tensors.items():
            assert memory_of(written, name, array.dtype).tobytes() == array.tobytes(), name
        assert written.manifest["tensors"]["names"] == sorted(tensors, key=str.encode)

        again = dict(reversed(tensors.items()))
        assert helpers.write(pathlib.Path(folder, "again"), native_specs(again)).files() == written.files()


def test_other_addresses_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    def tensors() -> dict[str, np.ndarray]:
        table = np.arange(60_000, dtype=np.int32).reshape(300, 200)
        return {"table": table, "turned": table.T, "row": table[7], "alone": np.ones(5), "none": np.zeros((0, 3))}

    both = tensors(), tensors()  # alive at the same time, so at different addresses
    first, second = (
        helpers.write(tmp_path / str(number), native_specs(some)).files() for number, some in enumerate(both)
    )
    assert first == second


def test_manifest_is_canonical(tmp_path: pathlib.Path) -> None:
    identity = json.dumps({"z": [1, {"é": None, "a\u0001": "\u2028/"}], "a": {}})
    written = helpers.write(tmp_path / "artifact", native_specs({"w": np.ones(3)}), identity, '{ "s" : "f64:0" }')
    again = json.dumps(written.manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert written.manifest_text == again.encode()
    assert written.manifest["identity"] == json.loads(identity)


def test_scalars_that_have_no_canonical_text_are_refused(tmp_path: pathlib.Path) -> None:
    for scalars in ('{"a":1.5}', '{"a":1,"a":1}', '{"a":-1}', "[]", '{"a":9007199254740992}', '{"a":NaN}', "{"):
        with pytest.raises(ValueError, match="JSON"):
            helpers.write(tmp_path / "artifact", native_specs({"w": np.ones(3)}), "{}", scalars)


# Every dtype of the format that the package knows; a newer one that drops or gains some shows here.
@pytest.mark.parametrize(
    ("dtype", "bits", "known"),
    [
        *((name, 8, True) for name in ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0")),
        *((name, 8, True) for name in ("F8_E4M3FNUZ", "F8_E5M2FNUZ")),
        *((name, 16, True) for name in ("U16", "I16", "F16", "BF16")),
        *((name, 32, True) for name in ("U32", "I32", "F32")),
        *((name, 64, True) for name in ("U64", "I64", "F64", "C64")),
        *(("F4", 4, True), ("F6_E2M3", 6, True), ("F6_E3M2", 6, True), ("C128", 128, False)),
    ],
)
def test_dtypes_that_safetensors_knows(dtype: str, bits: int, known: bool) -> None:
    nbytes = 4 * bits // 8
    header = json.dumps({"t": {"dtype": dtype, "shape": [4], "data_offsets": [0, nbytes]}}).encode()
    blob = len(header).to_bytes(8, "little") + header + bytes(nbytes)
    if known:
        assert [name for name, _ in safetensors.deserialize(blob)] == ["t"]
    else:
        with pytest.raises(safetensors.SafetensorError, match="unknown variant"):
            safetensors.deserialize(blob)
