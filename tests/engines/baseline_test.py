"""Without coldsnap two starts of the engine agree bit for bit, and other values give other tokens.

What the other tests conclude from equal tokens and log-probabilities stands on this.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.engines import models
from tests.engines.harness import Place, Start


@pytest.mark.parametrize("kind", models.KINDS)
def test_two_starts_agree(kind: str, tmp_path: pathlib.Path) -> None:
    model = models.make(kind, tmp_path / "model")
    one, two = Place(tmp_path).start(Start(model), Start(model))

    assert one.served, one.log[-4000:]
    assert one.outputs == two.outputs
    assert one.outputs[0] != one.outputs[1]


def test_other_values_give_other_tokens(tmp_path: pathlib.Path) -> None:
    same = models.make("dense", tmp_path / "same")
    other = models.make("dense", tmp_path / "other", seed=2)
    one, two = Place(tmp_path).start(Start(same), Start(other))

    assert one.served, one.log[-4000:]
    assert two.served, two.log[-4000:]
    assert all(mine[0] != theirs[0] for mine, theirs in zip(one.outputs, two.outputs, strict=True))
