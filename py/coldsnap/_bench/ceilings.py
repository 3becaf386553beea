"""What this machine can do at best, measured by means that share no code with what is judged.

Files are read by Python threads through `os.preadv` (which drops the GIL) into aligned buffers of their own. Digests
and pinned copies are the exception: they are the very functions of `_native`, run alone, because the question there is
what is left of them once everything runs at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
import os
import statistics
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coldsnap import _native, errors
from coldsnap._bench import cache, threads
from coldsnap._bench.arena import Bytes, HostArena
from coldsnap._bench.sizes import MIB

RAW_DIRECT_READ = "raw_direct_read"
RAW_BUFFERED_READ = "raw_buffered_read"
RAW_HALF_READ = "raw_half_read"
DIRECT_READ_HASHED = "direct_read_hashed"
RAW_DIRECT_WRITE = "raw_direct_write"
PAGE_CACHE_READ = "page_cache_read"
MEMORY_COPY = "memory_copy"
PINNED_H2D = "pinned_h2d"
PINNED_D2H = "pinned_d2h"
PROCESSORS = "processors"

_HUGE_PAGE = 2 * MIB
_RAW_BLOCK = 4 * MIB  # large enough that neither the drive nor Python's part of a call sets the pace
# As small as a core's own cache as far as the interpreter's lock allows: 16 threads reading 256 KiB at a time stop at
# 28 GB/s for want of the lock where 2 MiB at a time reach 62.
_CACHE_BLOCK = 2 * MIB
_HASH_BLOCK = 1 * MIB  # of what is hashed right after it was read
_LINK_BLOCK = 64 * MIB  # large enough that a copy's start costs nothing
_COPY_BYTES = 256 * MIB
_DIGEST_BYTES = 32 * MIB
_ALIGN = 65536


@dataclass
class Ceiling:
    """One ceiling: `samples` in bytes per second, one per call of `sample`.

    `mixed` is set once a sample that should have been cold or warm was not proved so; such a ceiling bounds nothing.
    `refused` holds the system's words when this kind of access does not work here at all. The first `earlier` samples
    are an interrupted calibration's, which this one goes on with.
    """

    family: str
    threads: int
    measure: Callable[[Ceiling], float]
    samples: list[float] = field(default_factory=list)
    mixed: bool = False
    refused: str = ""
    earlier: int = 0

    @property
    def key(self) -> str:
        """What tells it apart from the others, whatever is found out about it."""
        return f"{self.family}.t{self.threads}"

    @property
    def kin(self) -> str:
        """What it costs about as much time as."""
        return self.family

    @property
    def nbytes(self) -> int:
        """0: its time is known from its own samples alone."""
        return 0

    @property
    def taken(self) -> int:
        """How many samples this calibration took."""
        return len(self.samples) - self.earlier

    @property
    def name(self) -> str:
        """Its name in results.json: family, threads, and ``mixed`` where its cache state was not proved."""
        return self.key + (".mixed" if self.mixed else "")

    @property
    def label(self) -> str:
        """What the progress line says."""
        return f"{self.family.replace('_', ' ')}, {self.threads} threads"

    @property
    def median(self) -> float:
        """The median sample in bytes per second; 0 without samples."""
        return statistics.median(self.samples) if self.samples else 0.0

    def sample(self) -> None:
        """Take one sample, or note why this cannot be measured here."""
        if self.refused:
            return
        try:
            self.samples.append(self.measure(self))
        except errors.RouteUnavailableError as error:
            self.refused = error.message


def thread_ladder(cores: int) -> list[int]:
    """Give the thread counts to try: 1, 2, 4, 8, 16, as far as twice the usable cores."""
    return [count for count in (1, 2, 4, 8, 16) if count == 1 or count <= 2 * cores]


def best(ceilings: list[Ceiling], *families: str) -> Ceiling | None:
    """Find the fastest ceiling, by median, among those families whose cache state was proved; None without one."""
    usable = [each for each in ceilings if each.family in families and each.samples and not each.mixed]
    return max(usable, key=lambda each: each.median, default=None)


def cold_reads(blob: Path, ladder: list[int]) -> list[Ceiling]:
    """Raw reads from the drive: direct and buffered, the file dropped from the page cache before each sample."""

    def measure(ceiling: Ceiling) -> float:
        if not cache.is_cold(cache.make_cold(blob)):
            ceiling.mixed = True
        return _read_rate(blob, ceiling.threads, _RAW_BLOCK, direct=ceiling.family == RAW_DIRECT_READ)

    # Through the page cache more threads only get in each other's way: the ends of the ladder will do.
    buffered = sorted({ladder[0], ladder[-1]})
    kinds = ((RAW_DIRECT_READ, ladder), (RAW_BUFFERED_READ, buffered))
    return [Ceiling(family, count, measure) for family, counts in kinds for count in counts]


def half_reads(blob: Path, ladder: list[int]) -> list[Ceiling]:
    """Plain reads of the half-cached file, which bound nothing: whoever reads each half its own way is faster."""

    def measure(ceiling: Ceiling) -> float:
        if not cache.is_half(cache.make_half(blob)):
            ceiling.mixed = True
        return _read_rate(blob, ceiling.threads, _RAW_BLOCK, direct=False)

    return [Ceiling(RAW_HALF_READ, ladder[-1], measure)]


def hashed_reads(blob: Path, ladder: list[int]) -> list[Ceiling]:
    """Raw direct reads of the cold file whose bytes are hashed right after, by zlib and hashlib in the same threads.

    That is what a verified restore by the route direct has to do, without any of our code: on some machines a drive is
    slower by a fifth once a processor looks at what it has written.
    """

    def measure(ceiling: Ceiling) -> float:
        if not cache.is_cold(cache.make_cold(blob)):
            ceiling.mixed = True
        return _read_rate(blob, ceiling.threads, _HASH_BLOCK, direct=True, then=_hash)

    # A thread hashes at half the pace of a drive and less, so a few of them at least.
    counts = [count for count in ladder if count >= 4] or ladder[-1:]
    return [Ceiling(DIRECT_READ_HASHED, count, measure) for count in counts]


def _hash(block: memoryview) -> None:
    zlib.crc32(block)
    hashlib.sha256(block).digest()


def cached_reads(blob: Path, ladder: list[int]) -> list[Ceiling]:
    """Reads of the resident file into one small reused buffer per thread: what the page cache can give."""

    def measure(ceiling: Ceiling) -> float:
        if not cache.is_warm(cache.make_warm(blob)):
            ceiling.mixed = True
        return _read_rate(blob, ceiling.threads, _CACHE_BLOCK, direct=False)

    return [Ceiling(PAGE_CACHE_READ, count, measure) for count in ladder]


def direct_writes(folder: Path, source: HostArena, nbytes: int, ladder: list[int]) -> list[Ceiling]:
    """Raw direct writes of `nbytes` to a new file, allocated first and `fdatasync`ed, both within the time.

    `source` is written again and again until they are full: a capture writes random bytes too, and a drive's own cache
    is as much of a help to both.
    """

    def measure(ceiling: Ceiling) -> float:
        return _write_rate(folder / "raw-write", source, nbytes, ceiling.threads)

    return [Ceiling(RAW_DIRECT_WRITE, count, measure) for count in ladder]


def copies_and_digests(source: HostArena, cores: int) -> list[Ceiling]:
    """Host memory copy, crc32 and sha256t: on one core and on all that this process may use."""

    def part(index: int, nbytes: int) -> Bytes:
        nbytes = min(nbytes, source.nbytes)
        start = (index * nbytes) % max(1, source.nbytes - nbytes + 1)
        return source.bytes[start : start + nbytes]

    def copy(ceiling: Ceiling) -> float:
        share = min(_COPY_BYTES, source.nbytes) // ceiling.threads
        # Buffers made anew would measure page faults; the copies go back and forth between pages that were touched.
        targets = [part(index, share).copy() for index in range(ceiling.threads)]
        wall_s = threads.run(ceiling.threads, lambda index, _: np.copyto(targets[index], part(index, share)))
        return sum(target.size for target in targets) / wall_s

    def digest(function: Callable[[Any], object]) -> Callable[[Ceiling], float]:
        def measure(ceiling: Ceiling) -> float:
            parts = [part(index, _DIGEST_BYTES) for index in range(ceiling.threads)]

            def work(index: int, _: threads.Stopped) -> None:
                function(parts[index])

            return sum(each.size for each in parts) / threads.run(ceiling.threads, work)

        return measure

    counts = sorted({1, cores})
    kinds = ((MEMORY_COPY, copy), ("crc32", digest(_native.crc32)), ("sha256t", digest(_native.sha256t)))
    return [Ceiling(family, count, measure) for family, measure in kinds for count in counts]


def processors(source: HostArena, cores: int, part: str) -> Ceiling:
    """sha256t on all processors in the rounds of one part: how much of them this calibration had there."""

    def measure(ceiling: Ceiling) -> float:
        size = min(_DIGEST_BYTES, source.nbytes)
        wall_s = threads.run(ceiling.threads, lambda index, _: _discard(_native.sha256t(source.bytes[:size])))
        return size * ceiling.threads / wall_s

    return Ceiling(f"{PROCESSORS}_{part}", cores, measure)


def _discard(_: object) -> None:
    pass


def pinned_copies(device: str, payload_bytes: int) -> list[Ceiling]:
    """Copies between pinned host memory and the device on one stream, each way, in pieces of 64 MiB."""

    def measure(ceiling: Ceiling) -> float:
        wall_s: float = _native.measure_copy(device, ceiling.family == PINNED_H2D, payload_bytes, _LINK_BLOCK)
        return payload_bytes / wall_s

    return [Ceiling(family, 1, measure) for family in (PINNED_H2D, PINNED_D2H)]


def _read_rate(
    path: Path, count: int, block: int, *, direct: bool, then: Callable[[memoryview], None] | None = None
) -> float:
    """Read the whole file once by `count` threads, block by block, each then given to `then`; give bytes per second."""
    doing = f"read {path.name} {'with O_DIRECT ' if direct else ''}by {count} threads"
    handle = _open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0), doing)
    try:
        total = os.fstat(handle).st_size
        buffers = _buffers(count, block)

        # Whoever is done takes the next block, so that one slow thread does not hold the whole rate down.
        offsets = itertools.count(0, block)

        def work(index: int, stopped: threads.Stopped) -> None:
            while (offset := next(offsets)) < total and not stopped():
                wanted = min(block, total - offset)
                got = os.preadv(handle, [buffers[index]], offset)
                if got < wanted:
                    raise errors.IoError(f"{doing}: got {got} of {wanted} bytes at offset {offset}", stage="read")
                if then is not None:
                    then(buffers[index][:wanted])

        return total / threads.run(count, work)
    except errors.Error:
        raise
    except OSError as error:
        raise _failure(error, doing, direct) from error
    finally:
        os.close(handle)


def _buffers(count: int, nbytes: int) -> list[memoryview]:
    """Private buffers at a huge page's boundary, in huge pages where the system has them, every page touched.

    A direct read into small pages is cut into more requests, which can halve the rate of a fast drive. Shared maps,
    Python's default, get no huge pages from MADV_HUGEPAGE on most systems.
    """
    step = -(-nbytes // _HUGE_PAGE) * _HUGE_PAGE
    memory = mmap.mmap(-1, count * step + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, ValueError):  # without huge pages the rates are lower, and still true
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    whole.fill(1)
    start = -int(whole.ctypes.data) % _HUGE_PAGE
    return [whole[at : at + nbytes].data for at in range(start, start + count * step, step)]


def _write_rate(path: Path, source: HostArena, nbytes: int, count: int) -> float:
    """Write a new file with O_DIRECT, sync it, remove it; give bytes per second up to the end of the sync."""
    total = max(_ALIGN, nbytes // _ALIGN * _ALIGN)
    size = min(_RAW_BLOCK, source.nbytes // _ALIGN * _ALIGN)
    period = source.nbytes // size * size
    doing = f"write {total} bytes to {path.name} with O_DIRECT by {count} threads"
    handle = _open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT, doing)
    try:
        view = source.bytes.data

        offsets = itertools.count(0, size)

        def work(_: int, stopped: threads.Stopped) -> None:
            while (offset := next(offsets)) < total and not stopped():
                start = offset % period
                block = view[start : start + min(size, total - offset)]
                got = os.pwritev(handle, [block], offset)
                if got < len(block):
                    raise errors.IoError(f"{doing}: wrote {got} of {len(block)} bytes at {offset}")

        allocate_s = threads.run(1, lambda _, __: os.posix_fallocate(handle, 0, total))
        write_s = threads.run(count, work)
        sync_s = threads.run(1, lambda _, __: os.fdatasync(handle))
        return total / (allocate_s + write_s + sync_s)
    except errors.Error:
        raise
    except OSError as error:
        raise _failure(error, doing, True) from error
    finally:
        os.close(handle)
        path.unlink()


def _open(path: Path, flags: int, doing: str) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _failure(error, doing, bool(flags & os.O_DIRECT)) from error


def _failure(error: OSError, doing: str, direct: bool) -> errors.Error:
    """Tell a file system without direct I/O (a fact to note) from a failing drive (an error)."""
    if direct and error.errno in (22, 95):  # EINVAL, EOPNOTSUPP
        return errors.RouteUnavailableError(f"{doing}: {error.strerror}")
    return errors.from_errno(error, doing)
