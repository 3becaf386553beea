"""The page cache of one file: brought into a state, and the state proved by residency."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from coldsnap import _native, errors
from coldsnap._bench.sizes import MIB

# A state counts as proved up to this share of the file: a page or two that the kernel holds on to is no help to a read.
_TOLERANCE = 0.001
_HALF_PIECE = 16 * MIB
_PAGE = 65536  # a multiple of every page size


def residency(path: Path) -> float:
    """Tell which fraction of the file is in the page cache, 0.0 to 1.0."""
    resident, total = _native.residency(str(path))
    return resident / total if total else 0.0


def is_cold(fraction: float) -> bool:
    """Tell whether `fraction` proves that a read comes from the drive."""
    return fraction <= _TOLERANCE


def is_warm(fraction: float) -> bool:
    """Tell whether `fraction` proves that a buffered read comes from memory."""
    return fraction >= 1 - _TOLERANCE


def is_half(fraction: float) -> bool:
    """Tell whether `fraction` proves that about half of the bytes come from the drive."""
    return 0.4 <= fraction <= 0.6


def make_half(path: Path) -> float:
    """Have every other piece of 16 MiB (or, of a small file, a 16th of it) in the page cache, the rest not.

    Returns:
        The resident fraction.
    """
    make_cold(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead into the next piece
            total = os.fstat(handle).st_size
            piece = max(_PAGE, min(_HALF_PIECE, total // 16) // _PAGE * _PAGE)
            with mmap.mmap(-1, piece) as buffer:
                for offset in range(0, total, 2 * piece):
                    os.preadv(handle, [buffer], offset)
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.from_errno(error, f"read every other piece of {path.name}", stage="read") from error
    return residency(path)


def make_cold(path: Path) -> float:
    """Drop the file from the page cache; only this file, and no right beyond reading it is needed.

    Returns:
        The fraction that is still resident. More than 0 where files are memory or somebody maps the file: the caller
        marks its samples, since nothing here can make it cold.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)  # dirty pages are not dropped
            for attempt in range(3):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                left = residency(path)
                if is_cold(left):
                    break
                time.sleep(0.01 * attempt)  # pages under write-back or in another core's batch go a moment later
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.from_errno(error, f"drop {path.name} from the page cache", stage="open") from error
    return left


def make_warm(path: Path) -> float:
    """Read the file into the page cache unless it is there; give back the resident fraction."""
    before = residency(path)
    if is_warm(before):
        return before
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with mmap.mmap(-1, 4 * MIB) as buffer:
                offset = 0
                while got := os.preadv(handle, [buffer], offset):
                    offset += got
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.from_errno(error, f"read {path.name} into the page cache", stage="read") from error
    return residency(path)
