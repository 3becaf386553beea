"""Opening an artifact and looking at what it holds. The format has one parser, in C++; this only presents it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from coldsnap import errors

if TYPE_CHECKING:
    from coldsnap import _native

# Bytes of one element as shapes count them: torch's packed F4 has two values in each element, and one F6 takes a byte
# (docs/format.md).
ITEM_BYTES: dict[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("F4", "F6_E2M3", "F6_E3M2"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
    "C128": 16,
}


# A collector that has a blob's lock moves the artifact and syncs its folder: longer than this it is stuck.
_COLLECTED_WITHIN_S, _LOOK_S = 5.0, 0.002


# Named tuples: an artifact may have a million of them, and they are made five times as fast as frozen dataclasses.
class TensorInfo(NamedTuple):
    """What an artifact knows of one tensor.

    Attributes:
        dtype: As safetensors writes it: ``F32``, ``BF16``, ``F8_E4M3``, ...
        shape: Elements per dimension; F4 counts packed pairs, as torch does.
        strides: Elements from one index to the next, per dimension.
        nbytes: Bytes of its elements; what its strides leave out is not counted.
        extent: Index of the extent that holds it; None when it has no bytes.
        offset: Bytes from the extent's begin to its first element.
        object: Equal numbers mean that one Python object had several names.
        role: What it is to its engine; may be empty.
        attrs: ``key=value`` strings of the adapter that captured it, sorted.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    extent: int | None
    offset: int
    object: int
    role: str
    attrs: tuple[str, ...]


class ExtentInfo(NamedTuple):
    """One contiguous byte range of the blob: ``file_offset`` and ``nbytes`` in bytes, digests in lower-case hex."""

    file_offset: int
    nbytes: int
    crc32: str
    sha256t: str


class Artifact(Mapping[str, TensorInfo]):
    """An opened artifact: tensor names to `TensorInfo`. Header, manifest and leaf digests were checked on opening.

    Use it as a context manager, or call `close`. Several threads may read it at the same time.
    """

    def __init__(self, native: _native.Artifact) -> None:
        self._native: _native.Artifact | None = native
        self._rows: dict[str, tuple[Any, ...]] = {row[0]: row for row in native.tensors()}
        self._extents = [ExtentInfo._make(row) for row in native.extents()]
        self._scalars: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> TensorInfo:
        _, dtype, shape, strides, extent, offset, same, role, attrs = self._rows[name]
        nbytes = math.prod(shape) * ITEM_BYTES[dtype]
        return TensorInfo(dtype, tuple(shape), tuple(strides), nbytes, extent, offset, same, role, tuple(attrs))

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    # Two handles are the same artifact only if they are the same handle; Mapping would compare every entry.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def native(self) -> _native.Artifact:
        """The C++ object behind this one.

        Raises:
            RequestInvalidError: The artifact is closed.
        """
        if self._native is None:
            raise errors.RequestInvalidError("use an artifact that is closed", remedy="open it again")
        return self._native

    @property
    def artifact_root(self) -> str:
        """SHA-256 in lower-case hex that names the artifact's content."""
        return self.native.artifact_root

    @property
    def shard(self) -> str:
        """Name of the shard that is open, ``shard-<pp>-<tp>-<ep>``."""
        return self.native.shard

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of all the shards that the artifact has."""
        return tuple(self.native.shards)

    @property
    def identity(self) -> dict[str, Any]:
        """What the artifact was captured from."""
        found: dict[str, Any] = json.loads(self.native.identity)
        return found

    @property
    def scalars(self) -> dict[str, Any]:
        """Values captured beside the tensors; floats stand as strings of their bits (docs/format.md).

        The same object every time, since a model has tens of thousands of them: not to be changed.
        """
        native = self.native  # closed or not
        if self._scalars is None:
            self._scalars = json.loads(native.scalars)
        return self._scalars

    @property
    def capture(self) -> dict[str, Any]:
        """Who captured it, when and how; no digest covers this."""
        found: dict[str, Any] = json.loads(self.native.capture)
        return found

    @property
    def payload_bytes(self) -> int:
        """Sum of the extents' bytes, without padding."""
        return self.native.payload_bytes

    @property
    def blob_bytes(self) -> int:
        """Size of the blob file in bytes."""
        return self.native.blob_bytes

    @property
    def data_start(self) -> int:
        """Where the blob's data begins, in bytes from its start; a multiple of 65536."""
        return self.native.data_start

    @property
    def extents(self) -> tuple[ExtentInfo, ...]:
        """The extents, in the order of their indices."""
        return tuple(self._extents)

    def extent(self, index: int) -> ExtentInfo:
        """One extent, without copying the others."""
        return self._extents[index]

    def name_of_extent(self, index: int) -> str:
        """The smallest name (UTF-8 bytes) of a tensor in the extent: how messages call it."""
        names = (row[0] for row in self._rows.values() if row[4] == index)
        return min(names, key=lambda name: name.encode(), default="no tensor")

    def close(self) -> None:
        """Let go of the files. What is running on the artifact keeps them until it ends."""
        self._native = None

    def __enter__(self) -> Artifact:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._native is None:
            return f"<coldsnap.Artifact closed, {len(self)} tensors>"
        return (
            f"<coldsnap.Artifact {self.artifact_root[:12]} {self.shard}, {len(self)} tensors in "
            f"{len(self._extents)} extents, {self.payload_bytes} bytes>"
        )


def open_artifact(path: str | os.PathLike[str], *, shard: str | None = None) -> Artifact:
    """Open the artifact in the directory ``path``.

    Args:
        path: The artifact's directory, the one with ``artifact.json``.
        shard: Which shard, such as ``shard-00-01-00``; may be left out when there is only one.
    Returns:
        The opened artifact; sizes, header, manifest and leaf digests are checked, the payload is not read.
    Raises:
        RequestInvalidError: ``path`` or ``shard`` is of the wrong type, or there is no such shard.
        FormatInvalidError: The directory is no artifact, or its description breaks the format.
        DataLossError: A file is shorter or longer than the artifact says.
        IoError: A file can't be opened or read; ``errno`` says why.
    Source:
        Byte layout: docs/format.md.
    """
    where, which = _as_path(path), _as_shard(shard)
    return Artifact(_held(load_native().open_artifact(where, which)))


def shard_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of the shards that the artifact in the directory ``path`` lists; of them all, only artifact.json is read.

    Raises:
        As `open_artifact`.
    """
    names: list[str] = load_native().artifact_shards(_as_path(path))
    return names


open = open_artifact  # the public name: coldsnap.open


def _held(native: _native.Artifact) -> _native.Artifact:
    """Tell `coldsnap.Store.gc` that the artifact is in use, until its blob is closed.

    Whoever collects has each blob's lock for a moment, and mostly only to see whether the artifact is open.
    """
    until = time.monotonic() + _COLLECTED_WITHIN_S
    while True:
        try:
            fcntl.flock(native.blob_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise _removed(native, "it is being removed from its store") from None
            time.sleep(_LOOK_S)
        except OSError:
            return native  # a file system without locks, where nothing is removed either
    try:
        os.stat(native.path)
    except FileNotFoundError:
        raise _removed(native, "it was removed from its store") from None
    return native


def _removed(native: _native.Artifact, why: str) -> errors.IoError:
    return errors.IoError(f"open artifact {native.path}: {why}", stage="open", remedy="capture it again")


def _as_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise errors.RequestInvalidError(
            f"open an artifact: the path is a {type(path).__name__}",
            remedy="give its directory as str or PathLike[str]",
        )
    if not text or "\0" in text:
        raise errors.RequestInvalidError(f"open an artifact: {text!r} is no path", remedy="give its directory")
    return text


def _as_shard(shard: object) -> str | None:
    if shard is not None and not isinstance(shard, str):
        raise errors.RequestInvalidError(
            f"open an artifact: the shard is a {type(shard).__name__}", remedy="give its name, such as shard-00-00-00"
        )
    return shard


def load_native() -> Any:
    """Import the C++ module: late, so that ``import coldsnap`` stays light.

    Raises:
        InternalError: The module is not there or does not load; the cause is in the text.
    """
    try:
        from coldsnap import _native
    except ImportError as cause:
        raise errors.InternalError(
            f"load coldsnap._native: {cause}", remedy="install the wheel, or build //py/coldsnap with Bazel"
        ) from cause
    return _native
