"""The explicit fallback: a restore in plain Python over an artifact that C++ has opened and checked.

It keeps the promises of the native provider: destinations are filled, every digest is compared, and a restore that
touched a destination and does not succeed leaves all of its ranges 0xFF. One thread, one chunk at a time; hashlib, zlib
and os do the work, so it agrees with the native provider only if both are right.
"""

from __future__ import annotations

import bisect
import ctypes
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from coldsnap import errors
from coldsnap.artifact import Artifact
from coldsnap.layout import Range
from coldsnap.settings import LEAF_BYTES

Tick = Callable[[int, int], bool]  # (done bytes, total bytes) -> whether to stop

_LEAF_DIGEST_BYTES = 32
_POISON = 0xFF
_NEEDS_A_COPY = "restore the artifact from a good copy, or capture it again"
_PYBUF_READ, _PYBUF_WRITE = 0x100, 0x200
# Not ctypes arrays: each length would make a type that lives as long as the process.
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view_of: Callable[[int, int, int], memoryview] = _memory_view


class Memory(Protocol):
    """Where a restore writes, and what a capture reads: a buffer, and the way from there to the tensors and back."""

    def ordered(self) -> AbstractContextManager[Any]:
        """What the restore runs inside of, so that the caller's earlier work on the memory comes first."""
        ...

    def buffer(self, address: int, nbytes: int) -> memoryview:
        """Host bytes to fill for [address, address + nbytes); valid until the next call."""
        ...

    def commit(self, address: int, nbytes: int) -> None:
        """Bring the bytes of the buffer to their address."""
        ...

    def fetch(self, address: int, nbytes: int) -> memoryview:
        """The bytes that are in [address, address + nbytes) now, on the host; valid until the next call."""
        ...

    def finish(self) -> None:
        """Wait until everything committed has arrived."""
        ...

    def fill(self, address: int, nbytes: int, value: int) -> None:
        """Set every byte of [address, address + nbytes) to ``value``."""
        ...


class HostMemory:
    """Destinations in host memory: the file is read straight into them."""

    def ordered(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def buffer(self, address: int, nbytes: int) -> memoryview:
        return _view_of(address, nbytes, _PYBUF_WRITE)

    def commit(self, address: int, nbytes: int) -> None:
        pass

    def fetch(self, address: int, nbytes: int) -> memoryview:
        return _view_of(address, nbytes, _PYBUF_READ)

    def finish(self) -> None:
        pass

    def fill(self, address: int, nbytes: int, value: int) -> None:
        ctypes.memset(address, value, nbytes)


class CudaMemory:
    """Destinations in torch CUDA tensors, by way of one CPU tensor of ``chunk_bytes``.

    Args:
        tensors: The destinations; bytes are written through views of their storages.
        device: ``cuda:N``.
        chunk_bytes: Most bytes on the way at once.
        streams: ``cudaStream_t`` handles whose earlier work comes before the restore.
    Raises:
        OutOfMemoryError: The CPU tensor can't be allocated.
    """

    def __init__(self, tensors: Iterable[Any], device: str, chunk_bytes: int, streams: Sequence[int]) -> None:
        self._torch = sys.modules["torch"]
        self._device = self._torch.device(device)
        self._streams = streams
        by_size = sorted((tensor.untyped_storage() for tensor in tensors), key=lambda storage: storage.nbytes())
        storages = {storage.data_ptr(): storage for storage in by_size}  # where two begin alike, the larger
        self._begins = sorted(storages)
        self._storages = [storages[begin] for begin in self._begins]
        try:
            self._staging = self._torch.empty(chunk_bytes, dtype=self._torch.uint8)
        except (RuntimeError, MemoryError) as cause:
            raise errors.OutOfMemoryError(
                f"allocate {chunk_bytes} bytes of host memory to stage for {device}: {cause}",
                stage="ring",
                remedy="lower COLDSNAP_HYDRATION_CHUNK_BYTES",
            ) from cause

    def check(self, ranges: Iterable[Range]) -> None:
        """Refuse ranges that no single storage holds: torch gives no view over two.

        Raises:
            RouteUnavailableError: There is one.
        """
        for extent, address, nbytes in ranges:
            self._storage_of(address, nbytes, f"extent {extent}")

    def ordered(self) -> AbstractContextManager[Any]:
        cuda = self._torch.cuda
        with cuda.device(self._device):
            for handle in self._streams:
                stream = cuda.ExternalStream(handle) if handle else cuda.default_stream()
                cuda.current_stream().wait_stream(stream)
        device: AbstractContextManager[Any] = cuda.device(self._device)
        return device

    def buffer(self, address: int, nbytes: int) -> memoryview:
        return _view_of(self._staging.data_ptr(), nbytes, _PYBUF_WRITE)

    def commit(self, address: int, nbytes: int) -> None:
        try:
            self._bytes_at(address, nbytes).copy_(self._staging[:nbytes])  # from pageable memory: returns when read
        except RuntimeError as cause:
            raise errors.CudaError(f"copy {nbytes} bytes to {self._device}: {cause}", stage="device") from cause

    def fetch(self, address: int, nbytes: int) -> memoryview:
        try:
            self._staging[:nbytes].copy_(self._bytes_at(address, nbytes))  # into pageable memory: returns when written
        except RuntimeError as cause:
            raise errors.CudaError(f"copy {nbytes} bytes from {self._device}: {cause}", stage="device") from cause
        return self.buffer(address, nbytes)

    def finish(self) -> None:
        try:
            self._torch.cuda.current_stream(self._device).synchronize()
        except RuntimeError as cause:
            raise errors.CudaError(f"wait for the copies to {self._device}: {cause}", stage="device") from cause

    def fill(self, address: int, nbytes: int, value: int) -> None:
        self._bytes_at(address, nbytes).fill_(value)

    def _storage_of(self, address: int, nbytes: int, what: str) -> tuple[Any, int]:
        """The storage that holds the bytes, and where in it they begin."""
        at = bisect.bisect_right(self._begins, address) - 1
        if at >= 0 and address + nbytes <= self._begins[at] + self._storages[at].nbytes():
            return self._storages[at], address - self._begins[at]
        raise errors.RouteUnavailableError(
            f"reach {what} ({nbytes} bytes) on {self._device} with provider python: no single torch storage holds it",
            stage="open",
            remedy="use backend auto",
        )

    def _bytes_at(self, address: int, nbytes: int) -> Any:
        storage, offset = self._storage_of(address, nbytes, "a piece")
        view = self._torch.empty(0, dtype=self._torch.uint8, device=self._device)
        return view.set_(storage, offset, (nbytes,), (1,))


def hydrate(
    artifact: Artifact,
    ranges: Sequence[Range],
    memory: Memory,
    *,
    verify: str,
    chunk_bytes: int,
    tick: Tick,
    stages_s: dict[str, float],
) -> None:
    """Fill ranges from an artifact, compare every digest, and return; or raise with the ranges untouched or all 0xFF.

    Args:
        artifact: The opened artifact.
        ranges: From `coldsnap.layout.match`.
        memory: How to write to them.
        verify: ``crc32`` or ``crc32+sha256``.
        chunk_bytes: Bytes of one read, a multiple of 65536.
        tick: Called before each read and once at the end; True cancels.
        stages_s: Gets the seconds of each stage, also on failure.
    Raises:
        DataLossError: The blob is short (nothing touched if it was from the start) or a digest differs.
        IoError: A read failed.
        Cancelled: ``tick`` returned True.
        CudaError: A copy to the device failed.
        DeviceLostError: It failed, and the ranges could not even be poisoned.
    """
    _check_blob_size(artifact)
    work = _Work(artifact, memory, verify, chunk_bytes, tick, sum(nbytes for _, _, nbytes in ranges), stages_s)
    with memory.ordered():
        try:
            for extent, address, nbytes in ranges:
                work.restore(extent, address, nbytes)
            work.finish()
        except BaseException as failure:
            if work.touched:
                _poison(memory, ranges, failure)
            raise


class _Work:
    """One restore under way."""

    def __init__(
        self,
        artifact: Artifact,
        memory: Memory,
        verify: str,
        chunk_bytes: int,
        tick: Tick,
        total: int,
        stages_s: dict[str, float],
    ) -> None:
        self._artifact = artifact
        self._fd = artifact.native.blob_fd
        self._memory = memory
        self._sha256 = verify == "crc32+sha256"
        self._chunk_bytes = chunk_bytes
        self._tick = tick
        self._total = total
        self._done = 0
        self._stages_s = stages_s
        self.touched = False  # whether a destination may hold anything but what it held before

    def restore(self, extent: int, address: int, nbytes: int) -> None:
        info = self._artifact.extent(extent)
        digest = _ExtentDigest(self._artifact, extent, self._sha256)
        for begin in range(0, nbytes, self._chunk_bytes):
            self._stop_if_asked()
            length = min(self._chunk_bytes, nbytes - begin)
            self.touched = True
            buffer = self._memory.buffer(address + begin, length)
            self._timed("read", _read_exact, self._fd, buffer, info.file_offset + begin, digest.doing)
            self._timed("digest", digest.add, buffer)
            self._timed("copy", self._memory.commit, address + begin, length)
            self._done += length
        self._timed("digest", digest.check)

    def finish(self) -> None:
        self._timed("drain", self._memory.finish)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._tick(self._done, self._total):
            raise errors.Cancelled(f"hydrate {self._total} bytes: cancelled after {self._done} of them", stage="file")

    def _timed(self, stage: str, step: Callable[..., None], *arguments: Any) -> None:
        begin = time.monotonic()
        try:
            step(*arguments)
        finally:
            self._stages_s[stage] = self._stages_s.get(stage, 0.0) + time.monotonic() - begin


class _ExtentDigest:
    """Compares one extent's bytes, as they come, with its digests in the artifact (docs/format.md, "Digests")."""

    def __init__(self, artifact: Artifact, extent: int, sha256: bool) -> None:
        self._artifact = artifact
        self._extent = extent
        self._info = artifact.extent(extent)
        self._crc32 = 0
        self._sha256 = sha256
        self._root = hashlib.sha256()
        self._leaves = artifact.native.leaves(extent) if sha256 else b""
        self._piece = 0

    def doing(self) -> str:
        """What messages begin with; a method, since finding the name looks at every tensor."""
        return f"hydrate extent {self._extent} ({self._artifact.name_of_extent(self._extent)})"

    def add(self, chunk: memoryview) -> None:
        """Take the next bytes; all but the last chunk are whole pieces."""
        self._crc32 = zlib.crc32(chunk, self._crc32)
        if self._sha256:
            for begin in range(0, len(chunk), LEAF_BYTES):
                leaf = hashlib.sha256(chunk[begin : begin + LEAF_BYTES]).digest()
                self._root.update(leaf)
                if leaf != _leaf(self._leaves, self._piece):
                    raise self._lost(self._piece)
                self._piece += 1

    def check(self) -> None:
        """Raise unless the whole extent was what the artifact says."""
        crc32 = f"{self._crc32:08x}"
        if crc32 != self._info.crc32:
            raise self._lost(self._first_bad_piece(), f"crc32 is {crc32} and the artifact says {self._info.crc32}")
        if self._sha256 and self._root.hexdigest() != self._info.sha256t:
            found = f"sha256t is {self._root.hexdigest()} and the artifact says {self._info.sha256t}"
            raise self._lost(None, found)

    def _first_bad_piece(self) -> int | None:
        # Only after a failure: a CRC says that something differs, the leaves say where. The file is read once more.
        leaves = self._artifact.native.leaves(self._extent)
        piece = bytearray(LEAF_BYTES)
        for index in range(len(leaves) // _LEAF_DIGEST_BYTES):
            begin = index * LEAF_BYTES
            view = memoryview(piece)[: min(LEAF_BYTES, self._info.nbytes - begin)]
            _read_exact(self._artifact.native.blob_fd, view, self._info.file_offset + begin, self.doing)
            if hashlib.sha256(view).digest() != _leaf(leaves, index):
                return index
        return None

    def _lost(self, piece: int | None, found: str = "") -> errors.DataLossError:
        if piece is None:
            what = (
                f"{found}, though each 64 KiB piece of the file has its right digest: "
                "the manifest, the memory or the transfer is at fault"
            )
        else:
            begin = piece * LEAF_BYTES
            end = min(begin + LEAF_BYTES, self._info.nbytes)
            what = f"piece {piece} (bytes {begin} to {end - 1} of {self._info.nbytes}) is not what was captured"
        return errors.DataLossError(f"{self.doing()}: {what}", stage="digest", remedy=_NEEDS_A_COPY)


def _leaf(leaves: bytes, index: int) -> bytes:
    return leaves[index * _LEAF_DIGEST_BYTES : (index + 1) * _LEAF_DIGEST_BYTES]


def _read_exact(fd: int, buffer: memoryview, offset: int, doing: Callable[[], str]) -> None:
    done = 0
    while done < len(buffer):
        try:
            got = os.preadv(fd, [buffer[done:]], offset + done)
        except OSError as cause:
            what = f"{doing()}: read {len(buffer)} bytes at offset {offset} of the blob"
            raise errors.from_errno(cause, what, stage="file") from cause
        if got == 0:
            raise errors.DataLossError(
                f"{doing()}: read {len(buffer)} bytes at offset {offset} of the blob: "
                f"the file ends after {done} of them",
                stage="file",
                remedy=_NEEDS_A_COPY,
            )
        done += got


def _check_blob_size(artifact: Artifact) -> None:
    # Checked on opening, too; a file that lost its tail since then is refused before the first byte.
    size = os.fstat(artifact.native.blob_fd).st_size
    if size != artifact.blob_bytes:
        raise errors.DataLossError(
            f"hydrate from weights.safetensors of {artifact.shard}: the file has {size} bytes, the artifact says "
            f"{artifact.blob_bytes}",
            stage="file",
            remedy=_NEEDS_A_COPY,
        )


def _poison(memory: Memory, ranges: Sequence[Range], failure: BaseException) -> None:
    while True:
        try:
            for _, address, nbytes in ranges:
                memory.fill(address, nbytes, _POISON)
            memory.finish()
            return
        except KeyboardInterrupt:
            continue  # an impatient second Ctrl-C must not leave half of it looking restored
        except Exception as cause:
            raise errors.DeviceLostError(
                f"fill {len(ranges)} ranges with 0xFF after a failed restore ({failure}): {cause}",
                stage="publish",
                remedy="end this process: what its tensors hold is undefined",
            ) from failure


def memory_for(
    device: str, tensors: Mapping[str, Any], ranges: Sequence[Range], chunk_bytes: int, streams: Sequence[int]
) -> Memory:
    """The `Memory` of checked destinations on ``device``.

    Raises:
        RouteUnavailableError: A CUDA range lies across several torch storages.
        OutOfMemoryError: The staging tensor can't be allocated.
    """
    if device == "host":
        return HostMemory()
    memory = CudaMemory(tensors.values(), device, chunk_bytes, streams)
    memory.check(ranges)
    return memory
