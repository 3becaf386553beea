"""`coldsnap.verify` against damage anywhere in an artifact, and what it leaves behind."""

import os
import pathlib
import shutil

import pytest

import coldsnap
from coldsnap import _native, errors
from tests.api.helpers import MIB, file_of, flip_bit, random_bytes, truncate, write

WINDOW = 4 * MIB  # as much as is read at once
# In the order of the blob: large by name, then small. One is several windows, one fills a window, some share one.
LARGE = {"a": WINDOW * 2 + 12345, "b": WINDOW, "c": 65536, "d": 65537, "e": 70_000}
SMALL = {"f": 65535, "g": 1, "h": 511, "i": 60_000}


def write_sizes(path: pathlib.Path, sizes: dict[str, int]) -> pathlib.Path:
    return write(path, {name: random_bytes(nbytes, number) for number, (name, nbytes) in enumerate(sizes.items())})


@pytest.fixture(autouse=True)
def state_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_sizes(tmp_path / "artifact", {**LARGE, **SMALL})


@pytest.mark.parametrize(
    "sizes",
    [
        {"none": 0},
        {"one": 1},
        {f"{n:03}": 30_000 for n in range(300)},  # three groups of small extents
        {f"{n:03}": 65536 for n in range(100)},
        {"x": WINDOW - 65536, **{f"{n:03}": 40_000 for n in range(110)}},
    ],
    ids=["none", "one", "small", "pieces", "mixed"],
)
def test_any_layout_passes_and_its_last_bytes_count(tmp_path: pathlib.Path, sizes: dict[str, int]) -> None:
    path = write_sizes(tmp_path / "artifact", sizes)
    calls: list[tuple[int, int]] = []
    assert coldsnap.verify(path, progress=lambda done, total: calls.append((done, total))).ok
    with coldsnap.open(path) as artifact:
        assert calls[-1] == (artifact.blob_bytes, artifact.blob_bytes)
        if not artifact.extents:
            return
        extent = artifact.extents[-1]
        flip_bit(file_of(path, "weights.safetensors"), extent.file_offset + extent.nbytes - 1)
    with pytest.raises(errors.DataLossError, match=f"extent {len(sizes) - 1} "):
        coldsnap.verify(path)


@pytest.mark.parametrize(
    ("name", "offset", "what"),
    [
        ("a", 0, r"extent 0 \(a\): piece 0 \(bytes 0 to 65535 of 8400953\) is not what was captured"),
        ("a", WINDOW + 65536, r"extent 0 \(a\): piece 65 \(bytes 4259840 to 4325375 of 8400953\)"),
        ("a", LARGE["a"] - 1, r"extent 0 \(a\): piece 128 \(bytes 8388608 to 8400952 of 8400953\)"),
        ("b", WINDOW - 1, r"extent 1 \(b\): piece 63 "),
        ("d", 65536, r"extent 3 \(d\): piece 1 \(bytes 65536 to 65536 of 65537\)"),
        ("g", 0, r"extent 6 \(g\): piece 0 \(bytes 0 to 0 of 1\)"),
        ("i", 59_999, r"extent 8 \(i\): piece 0 \(bytes 0 to 59999 of 60000\)"),
    ],
)
def test_a_wrong_byte_is_named_by_extent_tensor_and_piece(
    path: pathlib.Path, name: str, offset: int, what: str
) -> None:
    with coldsnap.open(path) as artifact:
        extent = artifact.extent(artifact[name].extent or 0)
    flip_bit(file_of(path, "weights.safetensors"), extent.file_offset + offset)
    with pytest.raises(errors.DataLossError, match=what) as caught:
        coldsnap.verify(path)
    receipt = caught.value.receipt
    assert receipt is not None
    assert not receipt.ok
    assert receipt.error is not None
    assert (receipt.error["code"], receipt.error["stage"]) == ("data_loss", "digest")
    assert "good copy" in receipt.error["remedy"]


def test_padding_is_zero(path: pathlib.Path) -> None:
    with coldsnap.open(path) as artifact:
        begins = {*(extent.file_offset for extent in artifact.extents), artifact.blob_bytes}
        gaps = [extent.file_offset + extent.nbytes for extent in artifact.extents]
    blob = file_of(path, "weights.safetensors")
    gaps = [at for at in gaps if at not in begins]
    assert len(gaps) == 7  # all but "b" and "c" end within a piece
    for at in gaps:
        flip_bit(blob, at)
        what = f"byte {at} of weights.safetensors is padding between extents and not 0"
        with pytest.raises(errors.DataLossError, match=what):
            coldsnap.verify(path)
        flip_bit(blob, at)
    assert coldsnap.verify(path).ok


@pytest.mark.parametrize(
    ("name", "offset", "what"),
    [
        (
            "weights.safetensors",
            100,
            "the header of weights.safetensors has the SHA-256 [0-9a-f]{64}, and the artifact",
        ),
        ("weights.safetensors", 65535, "the header of weights.safetensors has"),
        ("manifest.json", 50, "manifest.json has the SHA-256"),
        ("leaves.bin", 40, "leaves.bin has the SHA-256"),
    ],
)
def test_what_changed_since_it_was_opened_is_found(path: pathlib.Path, name: str, offset: int, what: str) -> None:
    with coldsnap.open(path) as artifact:
        assert coldsnap.verify(artifact).ok
        flip_bit(file_of(path, name), offset)
        with pytest.raises(errors.DataLossError, match=f"verify shard-00-00-00: {what}"):
            coldsnap.verify(artifact)
    with pytest.raises(errors.DataLossError, match="open artifact"):
        coldsnap.verify(path)


def test_a_wrong_crc32_in_the_manifest_is_no_piece_s_fault(path: pathlib.Path) -> None:
    for extent in (0, 7):  # one compared in several pieces, one whole
        with coldsnap.open(path) as artifact:
            artifact._extents[extent] = artifact._extents[extent]._replace(crc32="00000000")
            with pytest.raises(
                errors.DataLossError, match=rf"extent {extent} .*crc32 is [0-9a-f]{{8}} and .* 00000000, th"
            ):
                coldsnap.verify(artifact)


def test_a_file_that_got_shorter(path: pathlib.Path) -> None:
    with coldsnap.open(path) as artifact:
        truncate(file_of(path, "weights.safetensors"), artifact.data_start + 1000)
        with pytest.raises(
            errors.DataLossError, match=r"bytes at offset \d+: the file ends after 1000 of them"
        ) as caught:
            coldsnap.verify(artifact)
    assert caught.value.stage == "file"


def test_a_file_that_was_replaced(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    blob = file_of(path, "weights.safetensors")
    with coldsnap.open(path) as artifact:
        shutil.copy2(blob, tmp_path / "copy")
        (tmp_path / "copy").rename(blob)
        with pytest.raises(errors.DataLossError, match="is another file than the one that was opened"):
            coldsnap.verify(artifact)
        blob.unlink()
        with pytest.raises(errors.IoError, match=r"verify .*: weights\.safetensors: No such file"):
            coldsnap.verify(artifact)


def test_the_page_cache_is_left_as_it_was(tmp_path: pathlib.Path) -> None:
    path = write_sizes(tmp_path / "artifact", {f"{n}": WINDOW for n in range(8)})
    blob = file_of(path, "weights.safetensors")

    def resident() -> float:
        found, total = _native.residency(str(blob))
        return found / total

    def bring_in(nbytes: int) -> None:
        with blob.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
            for at in range(0, nbytes, 65536):
                os.pread(file.fileno(), 65536, at)

    bring_in(0)
    if resident() > 0.05:
        pytest.skip("the file system of the test's folder keeps files in memory")
    for share in (0.0, 0.5, 1.0):
        bring_in(int(share * blob.stat().st_size))
        before = resident()
        receipt = coldsnap.verify(path)
        assert resident() == pytest.approx(before, abs=0.05)
        assert receipt.residency["before"] == pytest.approx(share, abs=0.05)
        assert receipt.residency["after"] == pytest.approx(share, abs=0.05)


def test_what_is_no_artifact_says_what_opening_it_says(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"open directory .*nowhere"):
        coldsnap.verify(tmp_path / "nowhere")
    (tmp_path / "artifact.json").write_text("[" * 100_000)
    with pytest.raises(errors.FormatInvalidError):
        coldsnap.verify(tmp_path)
    (tmp_path / "artifact.json").unlink()
    os.mkfifo(tmp_path / "artifact.json")
    with pytest.raises(errors.FormatInvalidError, match="no regular file"):
        coldsnap.verify(tmp_path)
    with pytest.raises(errors.RequestInvalidError, match="the path is a int"):
        coldsnap.verify(5)  # type: ignore[arg-type]
