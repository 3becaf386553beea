"""The blob's shape and content, and the comparison that must notice one wrong byte."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from coldsnap import errors
from coldsnap._bench import arena


@pytest.mark.parametrize("nbytes", [arena.MIN_BYTES, arena.MIN_BYTES + 1, (8 << 20) - 1, 8 << 20, 536870912, 1 << 40])
def test_pieces_add_up_and_do_not_touch(nbytes: int) -> None:
    pieces = arena.pieces_of(nbytes)
    assert sum(piece.nbytes for piece in pieces) == nbytes
    assert len({piece.name for piece in pieces}) == 32
    assert sum(piece.nbytes < 65536 for piece in pieces) == 24
    for piece, following in itertools.pairwise(pieces):
        assert piece.offset % 4096 == 0
        assert piece.offset + piece.nbytes < following.offset
    assert pieces[-1].offset + pieces[-1].nbytes < arena.arena_bytes(pieces)


def test_content_depends_on_the_seed_alone() -> None:
    pieces = arena.pieces_of(20 << 20)
    one, two, other = (arena.HostArena(pieces) for _ in range(3))
    one.fill(seed=1, workers=1)
    two.fill(seed=1, workers=3)
    other.fill(seed=2, workers=2)
    assert np.array_equal(one.bytes, two.bytes)
    # Random bytes agree by chance in one of 256 places.
    assert np.count_nonzero(one.bytes == other.bytes) < one.nbytes / 200
    assert np.count_nonzero(one.bytes[: 8 << 20] == one.bytes[8 << 20 : 16 << 20]) < (8 << 20) / 200
    assert np.count_nonzero(one.bytes == 0) < one.nbytes / 200


@pytest.mark.parametrize("which", [0, 7, 8, 31])
def test_one_wrong_byte_is_found_and_named(which: int) -> None:
    pieces = arena.pieces_of(20 << 20)
    memory = arena.HostArena(pieces)
    memory.fill(seed=3, workers=2)
    arena.require_equal(memory, pieces, 3, "direct")
    piece = pieces[which]
    memory.bytes[piece.offset + piece.nbytes - 1] ^= 1
    with pytest.raises(errors.DataLossError, match=f"byte {piece.nbytes - 1} of {piece.name} is"):
        arena.require_equal(memory, pieces, 3, "direct")


def test_clear_leaves_nothing() -> None:
    memory = arena.HostArena(arena.pieces_of(arena.MIN_BYTES))
    memory.fill(seed=3, workers=2)
    memory.clear(workers=2)
    assert not memory.bytes.any()
