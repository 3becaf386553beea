"""The library that COLDSNAP_HYDRATION_NATIVE_LIBRARY names: read, compared with its digest, loaded, asked its version.

What is hashed must be what runs. Between two looks a path may lead to another file, and a file may be written to, also
while it is mapped. So the file is read once; those bytes are hashed, and those bytes go into a sealed file in memory,
from which the loader takes them.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import stat
import struct
import threading
from dataclasses import dataclass

from coldsnap import errors, hydration_abi
from coldsnap.artifact import load_native
from coldsnap.settings import NATIVE_LIBRARY, NATIVE_SHA256

_MAX_BYTES = 1 << 30  # the library has a few million
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True)
class NativeLibrary:
    """A loaded library; ``version`` is what receipts say of it: its file's name, no path, and its digest."""

    version: str
    functions: hydration_abi.Library

    def hydrator(self, device: str) -> hydration_abi.Hydrator:
        """What `coldsnap._native.Hydrator` makes, by this library."""
        return hydration_abi.Hydrator(self.functions, device)


_lock = threading.Lock()
_loaded: dict[str, ctypes.CDLL] = {}  # by digest, also those that are refused: what is loaded once stays


def load(path: str, expected: str | None = None) -> NativeLibrary:
    """Load the library at ``path``, which has the SHA-256 ``expected`` if one is given.

    Raises:
        PolicyRefusedError: The file has another digest; nothing of it was run.
        RouteUnavailableError: The file can't be read, is no library, lacks functions, or is of another ABI version.
    """
    content = _read(path)
    sha256 = hashlib.sha256(content).hexdigest()
    if expected is not None and sha256 != expected:
        raise errors.PolicyRefusedError(
            f"load {NATIVE_LIBRARY}={path}: the SHA-256 of its {len(content)} bytes is {sha256}, and {NATIVE_SHA256} "
            f"says {expected}",
            stage="open",
            remedy="name the library that was meant, or give its digest",
        )
    with _lock:
        if sha256 not in _loaded:
            _loaded[sha256] = _dlopen(path, content)
        loaded = _loaded[sha256]
    return NativeLibrary(f"{os.path.basename(path)} sha256:{sha256}", _checked(path, loaded))


def _read(path: str) -> bytes:
    try:
        # O_NONBLOCK: a pipe in the place of the file must not hold us up.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
                raise _unavailable(path, f"it is no regular file of at most {_MAX_BYTES} bytes")
            return file.read(_MAX_BYTES)
    except OSError as cause:
        raise _unavailable(path, cause.strerror or str(cause), native=("errno", cause.errno or 0)) from cause


def _dlopen(path: str, content: bytes) -> ctypes.CDLL:
    if _reach(content) > len(content):  # the loader would map more than there is, and fault
        raise _unavailable(path, f"it has {len(content)} bytes, and its segments end at {_reach(content)}")
    load_native()  # brings the libisal.so.2 that stands beside it: what comes from memory has no folder to look in
    fd = _sealed(path, content)
    try:
        # The descriptor stays open: the loader knows a library by the path it came from, and would take the next one
        # that comes from a descriptor of the same number for this one.
        return ctypes.CDLL(f"/proc/self/fd/{fd}")
    except OSError as cause:
        os.close(fd)
        why = str(cause).replace(f"/proc/self/fd/{fd}", os.path.basename(path))
        raise _unavailable(path, f"the loader says: {why}") from cause


def _reach(content: bytes) -> int:
    """Where the last segment of an ELF file ends; 0 if it is none, which the loader finds out by itself."""
    if content[:5] != b"\x7fELF\x02" or len(content) < 64:
        return 0
    offset, entry_nbytes, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    ends: list[int] = [offset + count * entry_nbytes]
    if ends[0] <= len(content) and entry_nbytes >= 56:
        starts = range(offset, ends[0], entry_nbytes)
        ends += [sum(struct.unpack_from("<Q16xQ", content, start + 8)) for start in starts]
    return max(ends)


def _sealed(path: str, content: bytes) -> int:
    """A descriptor of memory that holds the bytes, and that nobody can change any more."""
    try:
        fd = os.memfd_create(os.path.basename(path), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(fd, "wb", closefd=False) as memory:
                memory.write(content)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            os.close(fd)
            raise
    except OSError as cause:
        why = f"put {len(content)} bytes into sealed memory: {cause.strerror}"
        raise _unavailable(path, why, native=("errno", cause.errno or 0)) from cause
    return fd


def _checked(path: str, loaded: ctypes.CDLL) -> hydration_abi.Library:
    try:
        version = hydration_abi.function_of(loaded, "abi_version")()
        if version != hydration_abi.VERSION:
            why = f"its hydration ABI is version {version}, and this coldsnap calls version {hydration_abi.VERSION}"
            raise _unavailable(path, why)
        return hydration_abi.Library(loaded)
    except AttributeError as cause:
        have = [name for name in hydration_abi.FUNCTIONS if hasattr(loaded, f"coldsnap_hydration_{name}")]
        lacks = ", ".join(f"coldsnap_hydration_{name}" for name in hydration_abi.FUNCTIONS if name not in have)
        raise _unavailable(
            path, f"it has {len(have)} of {len(hydration_abi.FUNCTIONS)} functions, not {lacks}"
        ) from cause


def _unavailable(path: str, why: str, native: tuple[str, int] | None = None) -> errors.RouteUnavailableError:
    return errors.RouteUnavailableError(
        f"load {NATIVE_LIBRARY}={path}: {why}",
        stage="open",
        remedy=f"name a libcoldsnap_hydration.so of ABI version {hydration_abi.VERSION}, or unset {NATIVE_LIBRARY}",
        native=native,
    )
