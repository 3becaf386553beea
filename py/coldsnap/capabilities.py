"""What works on this machine and in this container, and why the rest does not.

Every answer is ``{"works": ..., "why": ...}`` with what was seen beside it. ``works`` is null where only a restore can
tell. Nothing is concluded from a name or a mount option where a trial is possible: direct I/O is a block that was
written and read, and compared.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from coldsnap import errors, mounts, receipts, request_schema, settings
from coldsnap.artifact import load_native
from coldsnap.new_file import saying

FORMAT = 1
REFUSED_OPERATIONS = {
    name: f"{what} is not there in this version"
    for name, what in {
        "launch": "starting engines",
        "release": "holding an engine right before it starts",
    }.items()
}
_BLOCK_BYTES = 64 << 10  # as the trial read of a restore; a multiple of every block size
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
_GDS_LIBRARY = "libcufile.so.0"
_GDS_VERSIONS = range(1150, 1190)  # cc/gds/cufile_api.h
_NVIDIA_FS = Path("/proc/driver/nvidia-fs/version")
_PROBE_S = 30
# Each in a process of its own: a library that is loaded stays loaded, its driver open, and it opens files meanwhile.
_GDS_PROBE = f"""
import ctypes
version = ctypes.c_int()
print("version", ctypes.CDLL({_GDS_LIBRARY!r}).cuFileGetVersion(ctypes.byref(version)) or version.value)
"""
_GDS_DRIVER_PROBE = """
from coldsnap.artifact import load_native
from coldsnap import errors
try:
    print("path", *load_native().gds_driver())
except errors.Error as refused:
    print("refused", refused.message)
"""


def report(path: Path | None) -> dict[str, Any]:
    """Look at this machine, and at a folder of it.

    Args:
        path: A folder that artifacts are to lie in; a file of 64 KiB is written there and removed again. None: no folder
            is looked at.
    Returns:
        Values that JSON can hold: ``format``, ``versions``, ``machine``, ``gpu``, ``device_digests``, ``gds``,
        ``direct_io`` (None without a path), ``limits`` (of processors, memory in bytes, pinned memory), ``backends`` of
        hydration and capture, ``operations`` that a request may name, and ``refused_operations`` with the reason.
    Raises:
        RequestInvalidError: ``path`` is no folder.
        IoError, NoSpaceError: Nothing can be written there at all.
    """
    direct_io = None if path is None else _direct_io(path)
    gpu = _gpu()
    return {
        "format": FORMAT,
        "versions": receipts.versions(),
        "machine": receipts.machine(gpu["names"][0] if gpu["names"] else None),
        "gpu": gpu,
        "device_digests": _device_digests(gpu),
        "gds": _gds(gpu),
        "direct_io": direct_io,
        "limits": _limits(),
        "backends": {"hydration": list(settings.BACKENDS), "capture": list(settings.CAPTURE_BACKENDS)},
        "operations": [operation.name for operation in request_schema.OPERATIONS],
        "refused_operations": dict(REFUSED_OPERATIONS),
    }


def _gpu() -> dict[str, Any]:
    native = load_native()
    count, why = native.cuda_devices()
    names = []
    for index in range(count):
        try:
            names.append(native.device_name(f"cuda:{index}"))
        except errors.Error as cause:
            return {"works": False, "why": str(cause), "names": names}
    return {"works": count > 0, "why": why, "names": names}


def _device_digests(gpu: dict[str, Any]) -> dict[str, Any]:
    if not gpu["works"]:
        return {"works": False, "why": "there is no GPU to compute them"}
    whys = [load_native().why_no_device_digests(f"cuda:{index}") for index in range(len(gpu["names"]))]
    return {"works": not any(whys), "why": "; ".join(f"cuda:{index}: {why}" for index, why in enumerate(whys) if why)}


def _gds(gpu: dict[str, Any]) -> dict[str, Any]:
    version, library_why = _gds_library()
    nvidia_fs = _first_line(_NVIDIA_FS)
    seen = {"library_version": version, "nvidia_fs": nvidia_fs}
    missing = [] if gpu["works"] else ["there is no GPU to read into"]
    missing += [library_why] if library_why else []
    if missing:
        return {"works": False, "why": "; ".join(missing), **seen}
    driver, text = _answer_of(_GDS_DRIVER_PROBE)
    if driver != "path":
        return {"works": False, "why": text, **seen}
    return {"works": None, "why": f"{text}; whether a file system takes part, a restore with backend gds shows", **seen}


def _gds_library() -> tuple[int | None, str]:
    """The version of cuFile's library, and why it can't be used; no text where it can."""
    word, text = _answer_of(_GDS_PROBE)
    if word != "version":
        return None, f"load {_GDS_LIBRARY}: {text}"
    version = int(text)
    if version not in _GDS_VERSIONS:
        return version, f"{_GDS_LIBRARY} has version {version}, and 1.15 to 1.18 are known"
    return version, ""


def _answer_of(program: str) -> tuple[str, str]:
    """The first word and the rest of what a program prints last; no word, and why, where it fails."""
    # cuFile would write its log where we stand.
    environment = dict(os.environ, CUFILE_LOGFILE_PATH=os.devnull, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as cause:
        return "", f"in a process of its own: {cause}"
    if done.returncode != 0 or not done.stdout.strip():
        return "", (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
    word, _, text = done.stdout.strip().splitlines()[-1].partition(" ")
    return word, text


def _limits() -> dict[str, Any]:
    soft, hard = (
        None if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(resource.RLIMIT_MEMLOCK)
    )
    # CUDA pins without regard to it; it is here since people look for it when pinning fails.
    return {**load_native().limits(), "memlock_soft_bytes": soft, "memlock_hard_bytes": hard}


def _direct_io(path: Path) -> dict[str, Any]:
    """Write one block past the page cache, read it past the page cache, compare."""
    if not path.is_dir():
        raise errors.RequestInvalidError(f"try direct I/O in {path}: it is no folder", remedy="name a folder")
    name = path / f".coldsnap-probe-{os.urandom(8).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with saying(f"try direct I/O in {path}", "name a folder that this user may write to"):
        fd = os.open(name, flags, 0o600)
    try:
        system = mounts.of_descriptor(fd).type
        answer = {"path": str(path), "file_system": system, "block_bytes": _BLOCK_BYTES}
        why = _refusal_of_direct(name, fd)
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
    if not why and system in _IN_MEMORY:
        why = f"{system} takes direct reads and serves them from memory: no drive is read"
        return {"works": True, "why": why, "drive": False, **answer}
    return {"works": not why, "why": why, "drive": not why, **answer}


def _refusal_of_direct(name: Path, plain: int) -> str:
    """Why direct writes or reads of a new file do not work; no text where they do."""
    pattern = os.urandom(_BLOCK_BYTES)
    with mmap.mmap(-1, _BLOCK_BYTES) as block:  # aligned to a page
        try:
            fd = os.open(name, os.O_RDWR | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as cause:
            return f"open with O_DIRECT: {cause.strerror}"
        try:
            block[:] = pattern
            doing = "write"
            written = os.pwritev(fd, [block], 0)
            os.fdatasync(fd)
            block[:] = bytes(_BLOCK_BYTES)
            doing = "read"
            got = os.preadv(fd, [block], 0)
        except OSError as cause:
            return f"{doing} {_BLOCK_BYTES} bytes with O_DIRECT: {cause.strerror}"
        finally:
            os.close(fd)
        if (written, got) != (_BLOCK_BYTES, _BLOCK_BYTES):
            return f"of {_BLOCK_BYTES} bytes {written} were written and {got} read with O_DIRECT"
        if block[:] != pattern or os.pread(plain, _BLOCK_BYTES, 0) != pattern:
            return f"{_BLOCK_BYTES} bytes that were written with O_DIRECT came back changed: doubt this file system"
    return ""


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return None
