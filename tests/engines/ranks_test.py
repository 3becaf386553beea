"""Two ranks where the second one's weights are damaged: none restores alone, and both end alike."""

from __future__ import annotations

import pathlib

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, flip, require
from tests.engines.harness import Place, Start


def test_damage_of_one_rank_fails_both_and_the_next_start_serves(tmp_path: pathlib.Path) -> None:
    start = by_coldsnap(Start(models.make("dense", tmp_path / "model"), ranks=2), tmp_path / "store")
    place = Place(tmp_path)
    (captured,) = place.start(start)
    require(captured, captured, "captured", ranks=2)
    (artifact,) = artifacts(tmp_path / "store")
    flip(artifact / "shard-00-01-00" / "weights.safetensors")

    (failed,) = place.start(start)
    assert not failed.served
    assert not failed.lines("coldsnap: restored")
    # Rank 0 had its bytes and is not served either: it leaves no receipt that says so.
    assert [receipt["ok"] for receipt in failed.receipts] == [False]
    for rank in (0, 1):
        assert [line for line in failed.lines(f"Worker_TP{rank}") if "rank 1" in line and "DataLossError" in line]

    (served,) = place.start(start)
    assert served.outputs == captured.outputs
    assert served.lines("is under quarantine (data_loss")
