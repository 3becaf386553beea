"""The explicit fallback: one shard written in plain Python.

Layout and texts of the format come from the core; copying, hashing and writing are Python's, in one thread, one chunk
at a time. So that its files are byte for byte those of the native writer says something about both. Each chunk is
copied once, then hashed and written from that copy: what the digests say is what the file holds, also while somebody
writes to the source.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from coldsnap import errors
from coldsnap.artifact import load_native
from coldsnap.cold_file import ColdFile
from coldsnap.new_file import NewFile, make_folder, sync_folder, write_file
from coldsnap.python_provider import Memory, Tick, memory_for
from coldsnap.settings import LEAF_BYTES
from coldsnap.sources import Sources

BLOB, LEAVES, MANIFEST = "weights.safetensors", "leaves.bin", "manifest.json"
_DIGEST_BYTES = 32


def capture_shard(
    folder: str,
    shard: str,
    sources: Sources,
    identity_json: str,
    scalars_json: str,
    *,
    chunk_bytes: int,
    preverified: bool,
    check_source: bool,
    streams: Sequence[int],
    tick: Tick,
    stages_s: dict[str, float],
) -> dict[str, Any]:
    """Write one shard, durably, into a folder that is not published yet.

    Args:
        folder: An existing folder; the shard's is made in it.
        shard: Its name, ``shard-<pp>-<tp>-<ep>``.
        sources: The tensors.
        identity_json: A JSON object.
        scalars_json: The same.
        chunk_bytes: Bytes of one copy and one write, a multiple of 65536.
        preverified: Read the durable blob again past the page cache and compare every digest.
        check_source: Read the tensors again behind the last byte, and refuse a capture during which one changed.
        streams: ``cudaStream_t`` handles whose earlier work comes first.
        tick: Called before each chunk; True cancels. Its total counts each pass over the payload.
        stages_s: Gets the seconds of each stage, also on failure.
    Returns:
        What ``_native.capture_shard`` returns.
    Raises:
        RequestInvalidError: The tensors, identity or scalars are nothing that the format can hold.
        NoSpaceError: The file system has no room; said before the first byte where it can be known.
        DataLossError: A tensor changed meanwhile, or the blob did not come back as it was written.
        RouteUnavailableError: A CUDA range lies across several torch storages, or ``preverified`` can't be done here.
        IoError, CudaError, OutOfMemoryError: The machine failed.
        Cancelled: ``tick`` returned True.
        What is in the folder is the caller's to remove, however this ends.
    """
    passes = 1 + check_source + preverified
    work = _Shard(folder, shard, sources, chunk_bytes, streams, tick, passes, stages_s)
    with work.memory.ordered():
        work.write_blob()
        if check_source:
            work.require_unchanged_sources()
    if preverified:
        work.reread()
    return work.finish(identity_json, scalars_json)


def digest_shard(
    shard: str,
    sources: Sources,
    identity_json: str,
    scalars_json: str,
    *,
    chunk_bytes: int,
    streams: Sequence[int],
    tick: Tick,
    stages_s: dict[str, float],
) -> dict[str, Any]:
    """What `capture_shard` would return, without a file: for a rank whose shard another one writes.

    Args:
        shard: As of `capture_shard`, like the others.
        sources: The tensors.
        identity_json: A JSON object.
        scalars_json: The same.
        chunk_bytes: Bytes of one copy, a multiple of 65536.
        streams: ``cudaStream_t`` handles whose earlier work comes first.
        tick: Called before each chunk; True cancels.
        stages_s: Gets the seconds of each stage, also on failure.
    Raises:
        RequestInvalidError, RouteUnavailableError, CudaError, OutOfMemoryError, Cancelled: As of `capture_shard`.
    """
    work = _Shard("", shard, sources, chunk_bytes, streams, tick, 1, stages_s)
    with work.memory.ordered():
        work.digest()
    return work.report(work.describe(identity_json, scalars_json)[1], "", None)


class _Extent(NamedTuple):
    """Where an extent's bytes go in the blob, and where they are."""

    file_offset: int
    address: int
    nbytes: int


class _Shard:
    """One shard under way."""

    def __init__(
        self,
        folder: str,
        shard: str,
        sources: Sources,
        chunk_bytes: int,
        streams: Sequence[int],
        tick: Tick,
        passes: int,
        stages_s: dict[str, float],
    ) -> None:
        self._stages_s = stages_s
        with self._timed("open"):
            self._layout = load_native().plan_layout(sources.rows)
            self._extents = [_Extent._make(row) for row in self._layout.extents()]
        ranges = [(index, extent.address, extent.nbytes) for index, extent in enumerate(self._extents)]
        self.memory: Memory = memory_for(sources.device, sources.tensors, ranges, chunk_bytes, streams)
        self._payload_bytes = sum(extent.nbytes for extent in self._extents)
        self._total = passes * self._payload_bytes
        self._done = 0
        self._name, self._rows, self._tick = shard, sources.rows, tick
        self._chunk_bytes = chunk_bytes
        self._copy = memoryview(bytearray(chunk_bytes))
        self._crcs: list[int] = []
        self._leaves: list[bytes] = []  # of each extent, one after the other
        self._path = os.path.join(folder, shard)

    def write_blob(self) -> None:
        """Write the blob, and remember its digests."""
        make_folder(self._path, self._name)
        with NewFile(self._path, BLOB) as file:
            with self._timed("open"):
                file.reserve(self._layout.blob_bytes)
                file.write(self._layout.header, 0)
            for index, extent in enumerate(self._extents):
                self._write_extent(file, index, extent)  # the gaps between them are zero by `reserve`
            self._stop_if_asked()
            with self._timed("sync"):
                file.finish()

    def digest(self) -> None:
        """Remember the digests, and write nothing."""
        for index, extent in enumerate(self._extents):
            self._write_extent(None, index, extent)

    def _write_extent(self, file: NewFile | None, index: int, extent: _Extent) -> None:
        crc32, leaves = 0, bytearray()
        for begin, piece in self._copied(extent):
            with self._timed("digest"):
                crc32 = zlib.crc32(piece, crc32)
                leaves += _leaves_of(piece)
            if file is not None:
                with self._timed("write"):
                    file.write(piece, extent.file_offset + begin, lambda: self._doing(index))
        self._crcs.append(crc32)
        self._leaves.append(bytes(leaves))

    def require_unchanged_sources(self) -> None:
        """Compare the tensors with what was written of them: a capture is of one moment, or it is none."""
        for index, extent in enumerate(self._extents):
            for begin, piece in self._copied(extent, "source"):
                with self._timed("source"):
                    at = first_difference(piece, self._leaves[index], begin)
                if at is not None:
                    raise errors.DataLossError(
                        f"{self._doing(index)}: its memory changed while it was captured, first in the 64 KiB at byte "
                        f"{at} of {extent.nbytes}",
                        stage="digest",
                        remedy="capture while nothing writes to the tensors",
                    )

    def reread(self) -> None:
        """Compare the blob, as the drive gives it back, with what was written."""
        with self._timed("reread"), ColdFile(os.path.join(self._path, BLOB), self._chunk_bytes) as file:
            header = self._layout.header
            if b"".join(bytes(part) for part in file.parts(0, len(header))) != header:
                raise _came_back_different("the header")
            for index, extent in enumerate(self._extents):
                begin = 0
                for piece in file.parts(extent.file_offset, extent.nbytes):
                    self._stop_if_asked()
                    if (at := first_difference(piece, self._leaves[index], begin)) is not None:
                        raise _came_back_different(f"{self._doing(index)}: the 64 KiB at byte {at}")
                    begin += len(piece)
                    self._done += len(piece)

    def describe(self, identity_json: str, scalars_json: str) -> tuple[bytes, dict[str, Any]]:
        """The bytes of manifest.json, and the shard's entry in artifact.json."""
        sha256 = hashlib.sha256()
        for each in self._leaves:
            sha256.update(each)
        roots = [hashlib.sha256(each).hexdigest() for each in self._leaves]
        found: tuple[bytes, dict[str, Any]] = self._layout.manifest(
            self._name, self._crcs, roots, sha256.hexdigest(), identity_json, scalars_json
        )
        return found

    def finish(self, identity_json: str, scalars_json: str) -> dict[str, Any]:
        """Write leaves and manifest, and say what there is now."""
        with self._timed("publish"):
            text, record = self.describe(identity_json, scalars_json)
            write_file(self._path, LEAVES, b"".join(self._leaves))
            write_file(self._path, MANIFEST, text)
            sync_folder(self._path, f"folder {self._name}")
        return self.report(record, "python", _residency(os.path.join(self._path, BLOB)))

    def report(self, record: dict[str, Any], route: str, residency: float | None) -> dict[str, Any]:
        """The keys of ``_native.capture_shard``; no route where nothing was written."""
        routes = [{"route": route, "bytes": self._payload_bytes, "extents": len(self._extents)}]
        return {
            "record": json.dumps(record),
            "reasons": [],
            "routes": routes if route and self._extents else [],
            "stages_s": self._stages_s,
            "payload_bytes": self._payload_bytes,
            "blob_bytes": self._layout.blob_bytes,
            "extents": len(self._extents),
            "uncovered_bytes": self._layout.uncovered_bytes,
            "residency_after": residency,
        }

    def _copied(self, extent: _Extent, stage: str = "copy") -> Iterator[tuple[int, memoryview]]:
        """The extent's bytes in copies of ours, each with where it begins in the extent."""
        for begin in range(0, extent.nbytes, self._chunk_bytes):
            self._stop_if_asked()
            length = min(self._chunk_bytes, extent.nbytes - begin)
            with self._timed(stage):
                self._copy[:length] = self.memory.fetch(extent.address + begin, length)
            yield begin, self._copy[:length]
            self._done += length

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self._stages_s[stage] = self._stages_s.get(stage, 0.0) + time.monotonic() - begin

    def _stop_if_asked(self) -> None:
        if self._tick(self._done, self._total):
            raise errors.Cancelled(
                f"capture {self._payload_bytes} bytes: cancelled after {self._done} of {self._total} in all passes",
                stage="file",
            )

    def _doing(self, index: int) -> str:
        extent = self._extents[index]
        end = extent.address + extent.nbytes
        # Rows are in name order: the first that lies in the extent is the one that messages call it by.
        name = next(row[0] for row in self._rows if row[6] > 0 and extent.address <= row[5] < end)
        return f"capture extent {index} ({name})"


def _leaves_of(piece: memoryview) -> bytes:
    """The digests of the 64 KiB pieces (docs/format.md, "Digests")."""
    return b"".join(
        hashlib.sha256(piece[begin : begin + LEAF_BYTES]).digest() for begin in range(0, len(piece), LEAF_BYTES)
    )


def first_difference(piece: memoryview, leaves: bytes, begin: int) -> int | None:
    """Where in the extent the first leaf lies that is not as it was; ``piece`` begins at byte ``begin`` of it."""
    found, first = _leaves_of(piece), begin // LEAF_BYTES * _DIGEST_BYTES
    if found == leaves[first : first + len(found)]:
        return None
    for at in range(0, len(found), _DIGEST_BYTES):
        if found[at : at + _DIGEST_BYTES] != leaves[first + at : first + at + _DIGEST_BYTES]:
            return begin + at // _DIGEST_BYTES * LEAF_BYTES
    return begin


def _came_back_different(what: str) -> errors.DataLossError:
    return errors.DataLossError(
        f"{what} of {BLOB} came back from the drive with other bytes than were written",
        stage="digest",
        remedy="capture to another drive, and doubt this one",
    )


def _residency(path: str) -> float | None:
    try:
        resident, nbytes = load_native().residency(path)
    except errors.Error:
        return None  # a receipt says less where the system can't tell
    return resident / nbytes if nbytes else None
