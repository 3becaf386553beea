"""The blob's content: which extents, which random bytes, where they lie in memory, and whether they came back.

Shape: 24 small extents of 1 to 65,535 bytes (460,800 bytes together: norms, biases, scales; they share groups in the
blob), then 8 large ones that divide the rest 4:2:2:2:2:2:1:1 (an embedding, matrices, two halves). All but the last
large one are multiples of 4096 bytes; the last takes what is left, so the payload is exact and its end unaligned if
asked for. Content: block by block SFC64, each of 8 MiB from its own seed, so any block can be made again alone.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coldsnap import errors
from coldsnap._bench import threads
from coldsnap._bench.cuda import DeviceMemory
from coldsnap._bench.sizes import MIB

SMALL_BYTES = (512, 4096, 16384, 65535, 1, 28672) * 4
LARGE_SHARES = (4, 2, 2, 2, 2, 2, 1, 1)
MIN_BYTES = 2 * MIB  # below it the large extents would be small ones
_ALIGN = 4096
_BLOCK = 8 * MIB

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Piece:
    """One extent to be: its tensor's name, its place in the arena in bytes, and its size."""

    name: str
    offset: int
    nbytes: int


def equal_pieces(payload_bytes: int, extents: int) -> list[Piece]:
    """Divide `payload_bytes` into that many pieces of one size, the last with the rest; offsets are multiples of 4096."""
    size = payload_bytes // extents
    sizes = [size] * (extents - 1) + [payload_bytes - size * (extents - 1)]
    pieces, offset = [], 0
    for number, nbytes in enumerate(sizes):
        pieces.append(Piece(f"piece.{number:07d}", offset, nbytes))
        offset += (nbytes // _ALIGN + 1) * _ALIGN
    return pieces


def pieces_of(payload_bytes: int) -> list[Piece]:
    """Divide `payload_bytes` (at least `MIN_BYTES`) into the shape above; offsets are multiples of 4096."""
    rest = payload_bytes - sum(SMALL_BYTES)
    large = [rest * share // sum(LARGE_SHARES) // _ALIGN * _ALIGN for share in LARGE_SHARES]
    large[-1] += rest - sum(large)
    named = [(f"layers.{i}.weight", n) for i, n in enumerate(large)]
    named += [(f"norms.{i:02d}.weight", n) for i, n in enumerate(SMALL_BYTES)]
    pieces, offset = [], 0
    for name, nbytes in named:
        pieces.append(Piece(name, offset, nbytes))
        # One unused step after each: storages that touch could be taken for one.
        offset += (nbytes // _ALIGN + 1) * _ALIGN
    return pieces


def arena_bytes(pieces: list[Piece]) -> int:
    """Tell how much memory an arena for `pieces` takes."""
    return pieces[-1].offset + (pieces[-1].nbytes // _ALIGN + 1) * _ALIGN


class HostArena:
    """Host memory for all pieces: page-aligned, huge pages asked for, every page touched once filled or cleared."""

    def __init__(self, pieces: list[Piece]) -> None:
        """Reserve the memory.

        Raises:
            OutOfMemoryError: The system has none to give.
        """
        self.nbytes = arena_bytes(pieces)
        try:
            # Private: MADV_HUGEPAGE does nothing for a shared map on most systems.
            self._map = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise errors.from_errno(error, f"reserve {self.nbytes} bytes of host memory") from error
        with contextlib.suppress(OSError, ValueError):  # without huge pages only the first touches are slower
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)
        self.address = int(self.bytes.ctypes.data)

    def fill(self, seed: int, workers: int) -> None:
        """Fill with the random bytes of `seed`."""
        self._each_block(workers, lambda start, block: np.copyto(block, _random_block(seed, start, block.size)))

    def clear(self, workers: int) -> None:
        """Fill with zeros, so that nothing an earlier restore left can pass for this one's."""
        self._each_block(workers, lambda _, block: block.fill(0))

    def read(self, offset: int, into: Bytes) -> None:
        """Copy the bytes at `offset` to `into`."""
        np.copyto(into, self.bytes[offset : offset + into.size])

    def _each_block(self, workers: int, work: Callable[[int, Bytes], None]) -> None:
        def run(index: int, stopped: threads.Stopped) -> None:
            for start in range(index * _BLOCK, self.nbytes, workers * _BLOCK):
                if stopped():
                    return
                work(start, self.bytes[start : start + _BLOCK])

        threads.run(workers, run)


class DeviceArena:
    """Device memory for all pieces, as one allocation."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.nbytes = memory.nbytes
        self.address = memory.address
        self._memory = memory

    def clear(self, workers: int) -> None:
        """Fill with zeros."""
        self._memory.clear()

    def read(self, offset: int, into: Bytes) -> None:
        """Copy the bytes at `offset` to `into`, through pageable memory: this is a check, not a measurement."""
        self._memory.read(offset, int(into.ctypes.data), into.size)


def require_equal(arena: HostArena | DeviceArena, pieces: list[Piece], seed: int, route: str) -> None:
    """Compare every byte of every piece with the random bytes of `seed`, made anew.

    Raises:
        DataLossError: A byte differs although the restore verified; the message names piece, byte and both values.
    """
    found = np.empty(_BLOCK, np.uint8)
    for start, parts in _blocks(pieces, arena.nbytes):
        size = min(_BLOCK, arena.nbytes - start)
        wanted = _random_block(seed, start, size)
        arena.read(start, found[:size])
        for piece, low, high in parts:
            differs = np.flatnonzero(found[low:high] != wanted[low:high])
            if differs.size:
                at = low + int(differs[0])
                raise errors.DataLossError(
                    f"compare the restore by route {route} with its source: byte {start + at - piece.offset} of "
                    f"{piece.name} is {found[at]}, not {wanted[at]}, although every digest matched",
                    stage="digest",
                    remedy="please report it with the machine's results.json",
                )


def _blocks(pieces: list[Piece], nbytes: int) -> Iterator[tuple[int, list[tuple[Piece, int, int]]]]:
    """Give each block's start, and which of its bytes (from, to; relative to the block) belong to which piece."""
    for start in range(0, nbytes, _BLOCK):
        parts = []
        for piece in pieces:
            low = max(piece.offset, start) - start
            high = min(piece.offset + piece.nbytes, start + _BLOCK) - start
            if low < high:
                parts.append((piece, low, high))
        yield start, parts


def _random_block(seed: int, start: int, nbytes: int) -> Bytes:
    """Make the random bytes of the block at `start`; SFC64 gives 2.4 GB/s per core here, Philox 0.4."""
    generator = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(start // _BLOCK,)))
    words: npt.NDArray[np.uint64] = np.asarray(generator.random_raw((nbytes + 7) // 8))
    return words.view(np.uint8)[:nbytes]
