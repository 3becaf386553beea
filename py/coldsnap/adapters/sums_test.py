"""Sums see what changes in a storage, and where memory is shared count it once."""

import torch

from coldsnap.adapters import sums

_PIECE = sums.PIECE_BYTES


def test_a_byte_anywhere_is_seen() -> None:
    for nbytes in (1, 7, _PIECE - 1, _PIECE, _PIECE + 1, 3 * _PIECE + 5):
        tensor = torch.arange(nbytes, dtype=torch.int64).to(torch.uint8)
        before = sums.of({"w": tensor})
        assert sums.of({"w": tensor}) == before
        for at in {0, nbytes // 2, nbytes - 1}:
            tensor[at] += 1
            assert sums.changed(before, sums.of({"w": tensor})) == ["w"]
            tensor[at] -= 1
        assert sums.changed(before, sums.of({"w": tensor})) == []


def test_pieces_that_change_places_are_seen() -> None:
    """Experts that are balanced anew keep the sum of the whole."""
    experts = torch.arange(2 * _PIECE // 8, dtype=torch.int64).view(2, -1)
    before = sums.of({"experts": experts})
    experts.copy_(experts.flip(0).clone())
    assert sums.changed(before, sums.of({"experts": experts})) == ["experts"]


def test_a_storage_counts_once_and_whole() -> None:
    whole = torch.zeros(4, 8)
    tensors = {"a": whole[:1], "b": whole, "none": torch.empty(0, 3)}
    before = sums.of(tensors)
    assert list(before) == ["a"]
    whole[3, 7] = 1  # outside of what `a` shows
    assert sums.changed(before, sums.of(tensors)) == ["a"]


def test_what_is_gone_or_new_differs() -> None:
    assert sums.changed({"a": "1", "b": "2"}, {"b": "2", "c": "3"}) == ["a", "c"]
