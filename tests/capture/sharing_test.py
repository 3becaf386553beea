"""Equal extents of a store are stored once where the file system can: on xfs and btrfs, mounted for this test alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import sharing
from tests.capture import helpers
from tests.trust.file_systems import Image
from tests.trust.place import Place

MIB = 1 << 20
_FIEMAP, _SHARED, _SYNC = 0xC020660B, 0x2000, 1


@pytest.fixture(params=("btrfs", "xfs"))
def folder(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pathlib.Path]:
    """A folder on a file system that shares extents."""
    with contextlib.ExitStack() as unwind:
        yield Image(Place(tmp_path, monkeypatch, unwind), request.param).on


def shared_bytes(path: pathlib.Path) -> int:
    """What of a file the file system says it shares (FIEMAP)."""
    header, extent = struct.Struct("=QQIIII"), struct.Struct("=QQQQQIIII")
    request = bytearray(header.pack(0, (1 << 64) - 1, _SYNC, 0, 500, 0) + bytes(extent.size * 500))
    with path.open("rb") as file:
        fcntl.ioctl(file, _FIEMAP, request)
    count = header.unpack_from(request)[3]
    rows = [extent.unpack_from(request, header.size + index * extent.size) for index in range(count)]
    return sum(length for _, _, length, _, _, flags, *_ in rows if flags & _SHARED)


def blob(receipt: coldsnap.Receipt, store: pathlib.Path) -> pathlib.Path:
    (path,) = store.glob(f"*/{receipt.artifact_root}/shard-00-00-00/weights.safetensors")
    return path


def codes(receipt: coldsnap.Receipt) -> list[str]:
    return [reason["code"] for reason in receipt.reasons]


def two_models() -> tuple[dict[str, Any], dict[str, Any]]:
    """Of which one tensor of 20 MiB is the same, and stands at another place of the blob."""
    same = helpers.random_bytes(20 * MIB, 1)
    first = {"b": same, "small": helpers.random_bytes(700, 2)}
    return first, {"a": helpers.random_bytes(3 * MIB, 3), "b": same.copy()}


def test_an_equal_extent_is_stored_once(folder: pathlib.Path) -> None:
    first, second = two_models()
    store = folder / "store"
    before = coldsnap.capture(first, store=store, identity={"model": 1}, backend="buffered")
    assert "extents_shared" not in codes(before)
    marked = blob(before, store).stat()
    after = coldsnap.capture(second, store=store, identity={"model": 2}, backend="buffered")
    assert "extents_shared" in codes(after)
    assert shared_bytes(blob(before, store)) >= 20 * MIB
    assert shared_bytes(blob(after, store)) >= 20 * MIB
    now = blob(before, store).stat()
    assert (now.st_mtime_ns, now.st_ctime_ns) == (marked.st_mtime_ns, marked.st_ctime_ns)  # its marker still holds
    for tensors, identity in ((first, 1), (second, 2)):
        with coldsnap.Store(store).open({"model": identity}) as artifact:
            found = {name: np.zeros_like(array) for name, array in tensors.items()}
            coldsnap.hydrate(artifact, found, backend="buffered")
        for name, array in tensors.items():
            assert np.array_equal(found[name], array), name
    coldsnap.verify(blob(after, store).parent.parent)


def test_a_damaged_artifact_does_not_pass_its_bytes_on(folder: pathlib.Path) -> None:
    first, second = two_models()
    store = folder / "store"
    before = coldsnap.capture(first, store=store, identity={"model": 1}, backend="buffered")
    damaged = blob(before, store)
    os.chmod(damaged, 0o644)
    with damaged.open("r+b") as file:
        file.seek(10 * MIB)
        byte = file.read(1)
        file.seek(10 * MIB)
        file.write(bytes([byte[0] ^ 1]))
    after = coldsnap.capture(second, store=store, identity={"model": 2}, backend="buffered")
    assert "extents_differ" in codes(after)
    (reason,) = (reason for reason in after.reasons if reason["code"] == "extents_differ")
    assert str(before.artifact_root) in reason["detail"]
    coldsnap.verify(blob(after, store).parent.parent)


def test_elsewhere_it_is_copied_and_the_receipt_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system of a test's folder may be of either kind, so the call is made to refuse."""
    calls = []

    def refused(*_: Any) -> bool:
        calls.append(1)
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(sharing, "_dedupe", refused)
    first, second = two_models()
    coldsnap.capture(first, store=tmp_path / "store", identity={"model": 1}, backend="buffered")
    receipt = coldsnap.capture(second, store=tmp_path / "store", identity={"model": 2}, backend="buffered")
    assert calls == [1]
    (reason,) = (reason for reason in receipt.reasons if reason["code"] == "extents_copied")
    assert reason["detail"].startswith(f"1 extents, of {20 * MIB} bytes that are equal, are stored again")


def test_another_failure_is_no_success(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    first, second = two_models()
    store = tmp_path / "store"
    coldsnap.capture(first, store=store, identity={"model": 1}, backend="buffered")
    monkeypatch.setattr(sharing, "_dedupe", fails)
    with pytest.raises(coldsnap.IoError, match="share an extent"):
        coldsnap.capture(second, store=store, identity={"model": 2}, backend="buffered")
    assert [entry.identity_digest for entry in coldsnap.Store(store).ls()] == [
        coldsnap.Store(store).folder_of({"model": 1}).name
    ]


def test_an_artifact_that_is_collected_meanwhile_is_left_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_models()
    gone = blob(coldsnap.capture(first, store=tmp_path, identity={"model": 1}), tmp_path).parent.parent
    listed, looked_at = os.scandir, []

    def collected_first(path: Any = ".") -> Any:
        if path == gone and not looked_at:
            looked_at.append(path)
            gone.rename(tmp_path / "elsewhere")
        return listed(path)

    monkeypatch.setattr(os, "scandir", collected_first)
    receipt = coldsnap.capture(second, store=tmp_path, identity={"model": 2}, backend="python")
    assert looked_at == [gone]
    assert "extents_shared" not in codes(receipt) and "extents_copied" not in codes(receipt)
    coldsnap.verify(blob(receipt, tmp_path).parent.parent)
