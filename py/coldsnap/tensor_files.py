"""Tensors from and to the files that others use: safetensors, .npy and .npz.

Whole files come into memory of this process. A mapping would need none, but a file that shrinks under a mapping ends
the process by SIGBUS, without a word.

Source: the format's own description, https://github.com/huggingface/safetensors: 8 bytes with the header's length, a
JSON header with dtype, shape and data_offsets of each tensor, the data without gaps.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap import errors, records
from coldsnap._bench.host import memory_available
from coldsnap.artifact import ITEM_BYTES, Artifact
from coldsnap.new_file import NewFile, sync_folder
from coldsnap.tensors import Typed

if TYPE_CHECKING:
    import numpy

Progress = Callable[[int, int], object]

_MAX_HEADER_BYTES = 100_000_000  # of the format
_NAMED_BYTES = 8
_READ_BYTES = 64 << 20
_SPARE_BYTES = 256 << 20  # the interpreter, and the ring of a restore
# safetensors counts the values of these in bits, and artifacts the bytes that torch has.
_PACKED = ("F4", "F6_E2M3", "F6_E3M2")
_DTYPES = tuple(name for name in ITEM_BYTES if name not in (*_PACKED, "C128"))
_NUMPY_OF = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "C64": "complex64",
    "C128": "complex128",
}
_TENSOR = records.record(
    dtype=records.text("|".join(_DTYPES + _PACKED)),
    shape=records.array(records.whole(0, (1 << 53) - 1)),
    data_offsets=records.array(records.whole(0, (1 << 53) - 1)),
)


def _nobody(done: int, total: int) -> None:
    """Progress that nobody asked for."""


def _tell(progress: Progress, before: int, total: int, read: int) -> None:
    progress(before + read, total)


def numpy_dtype(dtype: str) -> str:
    """The numpy type of one element: its own, or unsigned integers of the width where numpy has none."""
    return _NUMPY_OF.get(dtype) or f"uint{8 * ITEM_BYTES[dtype]}"


def require_memory(nbytes: int, doing: str) -> None:
    """Refuse what the memory of this process can't hold with 256 MiB to spare.

    Raises:
        OutOfMemoryError: It can't; the message has what is left, and what bounds it.
    """
    left, bound = memory_available()
    if nbytes + _SPARE_BYTES > left:
        raise errors.OutOfMemoryError(
            f"{doing}: that takes {nbytes + _SPARE_BYTES} bytes of memory, and {bound} leaves {left}",
            remedy="give this process more memory",
        )


def read_safetensors(paths: Sequence[str], progress: Progress = _nobody) -> dict[str, Any]:
    """All the tensors of some safetensors files, in memory.

    Args:
        paths: The files.
        progress: Called with (bytes read, bytes of the files).
    Returns:
        Name to numpy array, or to `coldsnap.tensors.Typed` for types that numpy lacks.
    Raises:
        RequestInvalidError: A file is not there, breaks the format, has a packed type, or two have a tensor of one name.
        OutOfMemoryError: They don't fit.
        IoError: A file can't be read.
    """
    total, before = sum(_size_of(path) for path in paths), 0
    require_memory(total, f"read {len(paths)} safetensors files")
    found: dict[str, Any] = {}
    for path in paths:
        with _Counted(path, functools.partial(_tell, progress, before, total)) as file:
            for name, tensor in _tensors_of(path, file):
                if name in found:
                    raise _refused(path, f"another file has a tensor {name!r} too", "capture them one by one")
                found[name] = tensor
            before += file.size
    return found


def read_numpy(path: str, progress: Progress = _nobody) -> dict[str, Any]:
    """The arrays of a .npz file by their keys, or that of a .npy file by the file's name without ``.npy``.

    Args:
        path: The file.
        progress: Called with (bytes read, bytes of the file).
    Raises:
        RequestInvalidError: The file is not there, or is neither; arrays of Python objects are refused.
        OutOfMemoryError: They don't fit.
        IoError: It can't be read.
    """
    import numpy as np

    size = file_bytes = _size_of(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        require_memory(size, f"read {path}")
        with _Counted(path, lambda read: progress(read, file_bytes)) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                found = {Path(path).name.removesuffix(".npy"): loaded}
            else:
                with loaded:
                    found = {name: loaded[name] for name in loaded.files}
        return found
    except OSError as cause:
        if isinstance(cause, errors.Error):
            raise
        raise errors.from_errno(cause, f"read {path}", stage="file") from cause
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as cause:
        if isinstance(cause, errors.Error):
            raise
        raise _refused(path, str(cause), "give a .npy or .npz file without Python objects") from cause


def write_safetensors(path: str, artifact: Artifact, tensors: Mapping[str, Any]) -> int:
    """Write restored numpy arrays as one safetensors file that is not there yet, durably; the bytes written.

    Args:
        path: The file.
        artifact: Where the arrays came from; it knows their types.
        tensors: Name to numpy array.
    Raises:
        RequestInvalidError: A tensor has a type that the file can't hold as it is.
        ExistsError, NoSpaceError, IoError: It can't be written; nothing stays.
    """
    import numpy as np

    require_writable(artifact)
    header: dict[str, Any] = {}
    at = 0
    # Names in order within widths, widest first: then every tensor lies at a multiple of its element's bytes.
    names = sorted(tensors, key=lambda name: (-ITEM_BYTES[artifact[name].dtype], name.encode()))
    for name in names:
        info = artifact[name]
        header[name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": [at, at + info.nbytes]}
        at += info.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _NAMED_BYTES)
    place = Path(path)
    with NewFile(place.parent, place.name) as file:
        try:
            begin = _NAMED_BYTES + len(text)
            file.reserve(begin + at)
            file.write(len(text).to_bytes(_NAMED_BYTES, "little") + text, 0)
            for name in names:
                if artifact[name].nbytes:
                    data = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)
                    file.write(data.data, begin + header[name]["data_offsets"][0])
            file.finish(0o644)
            sync_folder(place.parent, f"the folder of {place.name}")
        except BaseException:
            place.unlink(missing_ok=True)
            raise
    return begin + at


def require_writable(artifact: Artifact) -> None:
    """Refuse an artifact with a tensor that `write_safetensors` would refuse.

    Raises:
        RequestInvalidError: A type of it stands in no safetensors file, or not with this shape.
    """
    name = next((name for name in artifact if artifact[name].dtype not in _DTYPES), None)
    if name is not None:
        raise errors.RequestInvalidError(
            f"write tensors as safetensors: {name!r} has the type {artifact[name].dtype}, which is not written there",
            remedy="restore it by coldsnap.hydrate, and write it yourself",
        )


class _Counted(io.RawIOBase):
    """A file that tells how much of it has been read; no file to numpy, which would read past it."""

    def __init__(self, path: str, read: Callable[[int], object]) -> None:
        self._file = _opened(path)
        self._told, self._read = read, 0
        self.size = os.fstat(self._file.fileno()).st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        got = int(self._file.readinto(buffer))
        self._read += got
        self._told(min(self._read, self.size))  # what is read again counts no more than there is
        return got

    def close(self) -> None:
        self._file.close()
        super().close()


def _tensors_of(path: str, file: _Counted) -> Iterator[tuple[str, Any]]:
    try:
        header, begin = _header(file, file.size)
    except ValueError as cause:
        raise _refused(path, str(cause), "give a whole safetensors file") from cause
    reached = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        reached = _checked(path, name, entry, reached)
    if begin + reached != file.size:
        raise _refused(path, f"its tensors end at byte {begin + reached}, and it has {file.size}", "copy it again")
    for name, entry in header.items():
        yield name, _read_tensor(file, path, begin, entry)


def _header(file: Any, size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(_NAMED_BYTES), "little")
    if size < _NAMED_BYTES or not 2 <= length <= min(size - _NAMED_BYTES, _MAX_HEADER_BYTES):
        raise ValueError(f"it has {size} bytes, and its header is said to have {length}")
    document = records.load(file.read(length), _object)
    document.pop("__metadata__", None)
    return {name: _TENSOR(entry, f"$[{name!r}]") for name, entry in document.items()}, _NAMED_BYTES + length


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"its header {where} is no object")
    return value


def _checked(path: str, name: str, entry: dict[str, Any], reached: int) -> int:
    """Hold one tensor to its type and its neighbours; where it ends."""
    if entry["dtype"] in _PACKED:
        raise _refused(path, f"tensor {name!r} has the packed type {entry['dtype']}", "capture it from torch")
    nbytes = math.prod(entry["shape"]) * ITEM_BYTES[entry["dtype"]]
    if entry["data_offsets"] != [reached, reached + nbytes]:
        raise _refused(
            path,
            f"tensor {name!r} is at {entry['data_offsets']}, and its {nbytes} bytes should begin at {reached}",
            "give a whole safetensors file",
        )
    end: int = reached + nbytes
    return end


def _read_tensor(file: Any, path: str, begin: int, entry: dict[str, Any]) -> Any:
    import numpy as np

    first, end = entry["data_offsets"]
    data: numpy.ndarray[Any, Any] = np.empty(end - first, np.uint8)
    file.seek(begin + first)
    for at in range(0, end - first, _READ_BYTES):
        piece = data.data[at : at + _READ_BYTES]
        try:
            got = file.readinto(piece)
        except OSError as cause:
            doing = f"read {len(piece)} bytes at offset {begin + first + at} of {path}"
            raise errors.from_errno(cause, doing, stage="file") from cause
        if got != len(piece):
            raise _refused(path, f"it became shorter than {begin + first + at + len(piece)} bytes", "copy it again")
    dtype = entry["dtype"]
    array = data.view(numpy_dtype(dtype)).reshape(entry["shape"])
    return array if dtype in _NUMPY_OF else Typed(array, dtype)


def _opened(path: str) -> Any:
    try:
        return open(path, "rb", buffering=0)
    except OSError as cause:
        raise _missing(path, cause) from cause


def _size_of(path: str) -> int:
    try:
        info = os.stat(path)
    except (OSError, ValueError) as cause:
        raise _missing(path, cause) from cause
    if not os.path.isfile(path):
        raise _refused(path, "it is no regular file", "name a file")
    return info.st_size


def _missing(path: str, cause: Exception) -> errors.Error:
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | NotADirectoryError):
        return errors.from_errno(cause, f"open {path}", stage="file")
    return _refused(path, getattr(cause, "strerror", None) or str(cause), "name a file that is there")


def _refused(path: str, why: str, remedy: str) -> errors.RequestInvalidError:
    return errors.RequestInvalidError(f"read {path}: {why}", stage="file", remedy=remedy)
