"""The Python provider against files that misbehave in the middle of a restore, and memory that can't be poisoned."""

import errno
import hashlib
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coldsnap import errors, python_provider
from coldsnap.artifact import Artifact
from coldsnap.settings import LEAF_BYTES

EXTENTS = [b"\x01" * 100, os.urandom(2 * LEAF_BYTES + 7), b"\x02" * LEAF_BYTES]


def leaves_of(data: bytes) -> bytes:
    return b"".join(hashlib.sha256(data[at : at + LEAF_BYTES]).digest() for at in range(0, len(data), LEAF_BYTES))


@pytest.fixture
def artifact(tmp_path: pathlib.Path) -> Iterator[Artifact]:
    """Extents one after the other in a file; only what the provider reads of an artifact."""
    path = tmp_path / "blob"
    path.write_bytes(b"".join(EXTENTS))
    fd = os.open(path, os.O_RDWR)
    rows, at = [], 0
    for data in EXTENTS:
        rows.append((at, len(data), f"{zlib.crc32(data):08x}", hashlib.sha256(leaves_of(data)).hexdigest()))
        at += len(data)
    names = [(f"w{index}", "U8", [len(data)], [1], index, 0, 0, "", []) for index, data in enumerate(EXTENTS)]
    yield Artifact(
        SimpleNamespace(  # type: ignore[arg-type]
            blob_fd=fd,
            blob_bytes=at,
            shard="shard-00-00-00",
            tensors=lambda: names,
            extents=lambda: rows,
            leaves=lambda index: leaves_of(EXTENTS[index]),
        )
    )
    os.close(fd)


class Destinations:
    def __init__(self) -> None:
        self.arrays = [np.full(len(data), 0x55, np.uint8) for data in EXTENTS]
        self.ranges = [(index, array.ctypes.data, array.nbytes) for index, array in enumerate(self.arrays)]

    def every_byte_is(self, value: int) -> bool:
        return all((array == value).all() for array in self.arrays)


@pytest.fixture
def destinations() -> Destinations:
    return Destinations()


def hydrate(
    artifact: Artifact,
    destinations: Destinations,
    memory: python_provider.Memory | None = None,
    verify: str = "crc32+sha256",
    tick: Callable[[int, int], bool] = lambda done, total: False,
) -> dict[str, float]:
    stages_s: dict[str, float] = {}
    python_provider.hydrate(
        artifact,
        destinations.ranges,
        memory or python_provider.HostMemory(),
        verify=verify,
        chunk_bytes=LEAF_BYTES,
        tick=tick,
        stages_s=stages_s,
    )
    return stages_s


@pytest.mark.parametrize("verify", ["crc32", "crc32+sha256"])
def test_fills_every_range_and_times_its_stages(artifact: Artifact, destinations: Destinations, verify: str) -> None:
    stages_s = hydrate(artifact, destinations, verify=verify)
    assert [array.tobytes() for array in destinations.arrays] == EXTENTS
    assert set(stages_s) == {"read", "digest", "copy", "drain"}


@pytest.mark.parametrize("verify", ["crc32", "crc32+sha256"])
def test_a_wrong_byte_is_named_by_extent_tensor_and_piece(
    artifact: Artifact, destinations: Destinations, verify: str
) -> None:
    at = len(EXTENTS[0]) + LEAF_BYTES + 5
    os.pwrite(artifact.native.blob_fd, bytes([EXTENTS[1][LEAF_BYTES + 5] ^ 1]), at)
    with pytest.raises(errors.DataLossError, match=r"extent 1 \(w1\): piece 1 \(bytes 65536 to 131071 of 131079\)"):
        hydrate(artifact, destinations, verify=verify)
    assert destinations.every_byte_is(0xFF)


def test_a_wrong_crc32_in_the_manifest_is_no_piece_s_fault(artifact: Artifact, destinations: Destinations) -> None:
    artifact._extents[2] = artifact._extents[2]._replace(crc32="00000000")
    with pytest.raises(errors.DataLossError, match=r"extent 2.*the artifact says 00000000, though each 64 KiB piece"):
        hydrate(artifact, destinations)
    assert destinations.every_byte_is(0xFF)


def test_each_digest_counts_by_itself(artifact: Artifact, destinations: Destinations) -> None:
    artifact._extents[2] = artifact._extents[2]._replace(sha256t="0" * 64)
    with pytest.raises(
        errors.DataLossError, match=r"extent 2 \(w2\): sha256t is [0-9a-f]{64} and the artifact says 0{64}, "
    ):
        hydrate(artifact, destinations)
    hydrate(artifact, destinations, verify="crc32")

    right = artifact.native.leaves
    artifact.native.leaves = lambda extent: right(extent)[:-1] + b"?"  # type: ignore[method-assign]
    with pytest.raises(errors.DataLossError, match=r"extent 0 \(w0\): piece 0 "):
        hydrate(artifact, destinations)
    hydrate(artifact, destinations, verify="crc32")


def test_a_file_that_got_shorter_is_refused_before_the_first_byte(
    artifact: Artifact, destinations: Destinations
) -> None:
    os.ftruncate(artifact.native.blob_fd, artifact.blob_bytes - 1)
    with pytest.raises(errors.DataLossError, match=f"has {artifact.blob_bytes - 1} bytes") as caught:
        hydrate(artifact, destinations)
    assert caught.value.stage == "file"
    assert destinations.every_byte_is(0x55)


def test_a_file_that_gets_shorter_meanwhile(artifact: Artifact, destinations: Destinations) -> None:
    def shorten(done: int, total: int) -> bool:
        os.ftruncate(artifact.native.blob_fd, 150)
        return False

    with pytest.raises(
        errors.DataLossError, match=r"extent 1 \(w1\).*at offset 100 of the blob.*ends after 50 of them"
    ):
        hydrate(artifact, destinations, tick=shorten)
    assert destinations.every_byte_is(0xFF)


def test_short_reads_are_continued(
    artifact: Artifact, destinations: Destinations, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: whole(fd, [buffers[0][:1000]], offset))
    hydrate(artifact, destinations)
    assert [array.tobytes() for array in destinations.arrays] == EXTENTS


def test_a_failing_read_keeps_its_number(
    artifact: Artifact, destinations: Destinations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, buffers: list[Any], offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(errors.IoError, match=r"extent 0 \(w0\): read 100 bytes at offset 0 of the blob") as caught:
        hydrate(artifact, destinations)
    assert (caught.value.native, caught.value.stage) == (("errno", errno.EIO), "file")
    assert destinations.every_byte_is(0xFF)


@pytest.mark.parametrize("stop_at", [0, 1, 3, 5])
def test_cancelled_at_any_tick(artifact: Artifact, destinations: Destinations, stop_at: int) -> None:
    ticks = iter(range(100))
    with pytest.raises(errors.Cancelled, match="cancelled after"):
        hydrate(artifact, destinations, tick=lambda done, total: next(ticks) >= stop_at)
    assert destinations.every_byte_is(0x55 if stop_at == 0 else 0xFF)


def test_ticks_end_with_the_total(artifact: Artifact, destinations: Destinations) -> None:
    ticks: list[tuple[int, int]] = []
    hydrate(artifact, destinations, tick=lambda done, total: bool(ticks.append((done, total))))
    total = sum(map(len, EXTENTS))
    assert ticks[0] == (0, total)
    assert ticks[-1] == (total, total)
    assert [done for done, _ in ticks] == sorted(done for done, _ in ticks)


class BrokenMemory(python_provider.HostMemory):
    """Host memory whose copies fail, and whose poison may too."""

    def __init__(self, *fill_failures: BaseException) -> None:
        self.fill_failures = list(fill_failures)

    def ordered(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def commit(self, address: int, nbytes: int) -> None:
        raise errors.CudaError("copy", stage="copy")

    def fill(self, address: int, nbytes: int, value: int) -> None:
        if self.fill_failures:
            raise self.fill_failures.pop()
        super().fill(address, nbytes, value)


def test_memory_that_cannot_be_poisoned_is_a_lost_device(artifact: Artifact, destinations: Destinations) -> None:
    with pytest.raises(errors.DeviceLostError, match="end this process") as caught:
        hydrate(artifact, destinations, BrokenMemory(RuntimeError("gone")))
    assert isinstance(caught.value.__cause__, errors.CudaError)


def test_a_second_interrupt_does_not_stop_the_poison(artifact: Artifact, destinations: Destinations) -> None:
    with pytest.raises(errors.CudaError):
        hydrate(artifact, destinations, BrokenMemory(KeyboardInterrupt(), KeyboardInterrupt()))
    assert destinations.every_byte_is(0xFF)
