"""Artifacts as tar files: the same bytes there and back, and nothing from a tar that is no artifact's."""

import io
import os
import pathlib
import tarfile
import threading
from collections.abc import Callable

import numpy as np
import pytest

import coldsnap
from coldsnap import errors, packing, quarantine, ticker

WEIGHTS = {"w": np.arange(50_000, dtype=np.float32), "empty": np.zeros((0, 2))}
IDENTITY = {"model": "example"}
BLOB = "shard-00-00-00/weights.safetensors"
Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def packed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    coldsnap.capture(WEIGHTS, tmp_path / "artifact", identity=IDENTITY)
    packing.pack(tmp_path / "artifact", tmp_path / "a.tar")
    return tmp_path / "a.tar"


def store_of(packed: pathlib.Path) -> coldsnap.Store:
    return coldsnap.Store(packed.parent / "store")


def files_of(artifact: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(artifact)): path.read_bytes() for path in artifact.rglob("*") if path.is_file()}


def rewrite(packed: pathlib.Path, change: Callable[[Members], Members]) -> pathlib.Path:
    """The tar with other members."""
    with tarfile.open(packed) as tar:
        members = [(each, (tar.extractfile(each) or io.BytesIO()).read()) for each in tar]
    other = packed.with_name("other.tar")
    with tarfile.open(other, "w") as tar:
        for member, data in change(members):
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return other


def refused(packed: pathlib.Path, tar: pathlib.Path, kind: type[errors.Error], match: str) -> None:
    with pytest.raises(kind, match=match):
        packing.unpack(tar, store_of(packed))
    assert store_of(packed).ls() == []
    assert list((packed.parent / "store" / ".incoming").iterdir()) == []
    assert quarantine.every(os.environ) == []  # a bad tar says nothing of a good copy


def test_there_and_back(packed: pathlib.Path) -> None:
    calls: list[tuple[int, int]] = []
    found = packing.unpack(packed, store_of(packed), progress=lambda *call: calls.append(call))
    assert not found.already_present
    assert calls[-1][0] == calls[-1][1]
    before, after = files_of(packed.parent / "artifact"), files_of(found.path)
    assert before == after
    with store_of(packed).open(IDENTITY) as artifact:
        restored = {"w": np.empty(50_000, np.float32), "empty": np.zeros((0, 2))}
        coldsnap.hydrate(artifact, restored, backend="buffered")
    assert (restored["w"] == WEIGHTS["w"]).all()
    assert packing.unpack(packed, store_of(packed)).already_present


def test_artifact_json_comes_last_and_equal_artifacts_are_equal_files(packed: pathlib.Path) -> None:
    with tarfile.open(packed, "r:") as tar:
        names = tar.getnames()
        assert {(each.mtime, each.uid, each.mode) for each in tar.getmembers()} == {(0, 0, 0o444)}
    assert names[-1].endswith("/artifact.json")
    assert {name.partition("/")[0] for name in names} == {found_root(packed)}
    packing.pack(packed.parent / "artifact", packed.with_name("b.tar"))
    assert packed.read_bytes() == packed.with_name("b.tar").read_bytes()


def found_root(packed: pathlib.Path) -> str:
    with coldsnap.open(packed.parent / "artifact") as artifact:
        return artifact.artifact_root


def test_packing_tells_how_far_it_is_also_within_a_file(packed: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticker, "_TICK_S", 0.0)
    monkeypatch.setattr(packing, "_PIECE_BYTES", 4096)
    calls: list[tuple[int, int]] = []
    packing.pack(packed.parent / "artifact", packed.with_name("b.tar"), lambda *call: calls.append(call))
    assert packed.with_name("b.tar").read_bytes() == packed.read_bytes()
    total = sum(len(data) for data in files_of(packed.parent / "artifact").values())
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) > 30  # of 4 files


def test_nothing_is_replaced_and_nothing_stays_of_a_failure(
    packed: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed.read_bytes()
    with pytest.raises(errors.ExistsError, match="it is there already; name a new file"):
        packing.pack(packed.parent / "artifact", packed)
    assert packed.read_bytes() == before

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packing.pack(packed.parent / "artifact", packed.with_name("b.tar"), stop)
    with pytest.raises(errors.IoError, match=r"open the folder of .*b\.tar: No such file"):
        packing.pack(packed.parent / "artifact", packed.parent / "nowhere" / "b.tar")
    assert [path for path in packed.parent.iterdir() if "b.tar" in path.name] == []


def kind_of(kind: bytes) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        members[0][0].type, members[0][0].linkname = kind, "/etc/passwd"
        return [(members[0][0], b""), *members[1:]]

    return change


def named(name: str) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        members[0][0].name = name.replace("ROOT", members[1][0].name.partition("/")[0])
        return members

    return change


@pytest.mark.parametrize(
    "change",
    [kind_of(kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)],
)
def test_links_devices_and_folders_are_refused(change: Callable[[Members], Members], packed: pathlib.Path) -> None:
    refused(packed, rewrite(packed, change), errors.FormatInvalidError, "is no plain file")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/x",
        "../x",
        "ROOT/../../x",
        "ROOT/shard-00-00-00/../x",
        "ROOT/shard-00-00-00/x",
        "ROOT/x",
        "ROOT",
        "./ROOT/artifact.json",
        "ROOT/shard-00-00-00/manifest.json\nx",
        "ROOT/shard-0-0-0/manifest.json",
    ],
)
def test_names_that_no_artifact_has_are_refused(name: str, packed: pathlib.Path) -> None:
    refused(packed, rewrite(packed, named(name)), errors.FormatInvalidError, "is no file of an artifact")


@pytest.mark.parametrize(
    ("change", "kind", "match"),
    [
        (lambda found: [found[0], *found], errors.FormatInvalidError, "is there twice"),
        (lambda found: [found[-1], *found[:-1]], errors.FormatInvalidError, "comes after artifact.json"),
        (lambda found: found[:-1], errors.DataLossError, "it has no artifact.json"),
        (lambda found: [found[0], *found[2:]], errors.Error, "leaves.bin"),
        (lambda found: [], errors.DataLossError, "it has no artifact.json"),
        (named("0" * 64 + "/artifact.json"), errors.FormatInvalidError, "is of another artifact|comes after"),
        (
            lambda found: [*found[:2], (found[2][0], found[2][1][:65536] + b"?" + found[2][1][65537:]), found[3]],
            errors.DataLossError,
            r"extent \d \(w\): piece 0",
        ),
    ],
)
def test_what_is_not_the_whole_artifact_is_refused(
    change: Callable[[Members], Members], kind: type[errors.Error], match: str, packed: pathlib.Path
) -> None:
    refused(packed, rewrite(packed, change), kind, match)


def test_a_shard_that_is_not_listed_is_refused(packed: pathlib.Path) -> None:
    def change(members: Members) -> Members:
        extra = tarfile.TarInfo(members[0][0].name.replace("shard-00-00-00", "shard-00-00-07"))
        return [(extra, b"x"), *members]

    refused(packed, rewrite(packed, change), errors.FormatInvalidError, "shard-00-00-07, which its artifact.json does")


def test_another_roots_name_is_refused(packed: pathlib.Path) -> None:
    def change(members: Members) -> Members:
        for member, _ in members:
            member.name = "0" * 64 + member.name[64:]
        return members

    refused(packed, rewrite(packed, change), errors.FormatInvalidError, f"named after {'0' * 64}, and they are")


@pytest.mark.parametrize("left", [0, 100, 1000, 70_000, 200_000])
def test_a_tar_that_is_cut_short_is_refused(left: int, packed: pathlib.Path) -> None:
    short = packed.with_name("short.tar")
    short.write_bytes(packed.read_bytes()[:left])
    refused(packed, short, errors.Error, "it ends in the middle|unpack .*: ")


def test_a_header_may_not_be_huge(packed: pathlib.Path) -> None:
    huge = packed.with_name("huge.tar")
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 100 << 20
    with huge.open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(200 << 20)
    refused(packed, huge, errors.FormatInvalidError, "a header of it has 104857600 bytes")


def test_a_size_beyond_the_file_reserves_nothing(packed: pathlib.Path) -> None:
    liar = packed.with_name("liar.tar")
    with tarfile.open(packed) as tar:
        member = tar.next()
    assert member is not None
    member.size = 1 << 50
    liar.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    refused(packed, liar, errors.DataLossError, "it ends in the middle of shard-00-00-00/manifest.json")


def test_it_can_be_stopped(packed: pathlib.Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(errors.Cancelled, match="cancelled after 0 of"):
        packing.unpack(packed, store_of(packed), cancel=cancel)
    assert store_of(packed).ls() == []


def test_another_current_artifact_stays_unless_it_may_go(packed: pathlib.Path) -> None:
    coldsnap.capture({"w": np.ones(3)}, store=store_of(packed), identity=IDENTITY)
    with pytest.raises(errors.ExistsError):
        packing.unpack(packed, store_of(packed))
    found = packing.unpack(packed, store_of(packed), replace=True)
    assert store_of(packed).current(IDENTITY) == found.path
