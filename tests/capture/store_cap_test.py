"""A store's cap: who captures removes the oldest, never what is in use, or is refused with the figures."""

from __future__ import annotations

import os
import pathlib
import threading
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import packing

KIB = 1 << 10
BLOB = 256 * KIB  # of a model: 64 KiB of header, 192 KiB of weights


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("COLDSNAP_STORE_MAX_BYTES", raising=False)
    return tmp_path / "store"


def capture(store: Any, model: int, backend: str = "python", value: int = 0, **more: Any) -> coldsnap.Receipt:
    weights = {"w": np.full(192 * KIB, 16 * model + value, np.uint8)}
    return coldsnap.capture(weights, store=store, identity={"model": model}, backend=backend, **more)


def age(store: coldsnap.Store, model: int, days: float) -> None:
    path = store.current({"model": model})
    assert path is not None
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def models(store: coldsnap.Store) -> set[int]:
    return {model for model in range(9) if store.current({"model": model}) is not None}


def removed(receipt: coldsnap.Receipt) -> list[str]:
    return [each["detail"].split()[0] for each in receipt.reasons if each["code"] == "store_collected"]


@pytest.mark.parametrize("backend", ["python", "buffered"])
def test_the_oldest_goes(backend: str, folder: pathlib.Path) -> None:
    store = coldsnap.Store(folder, max_bytes=3 * BLOB)
    for model, days in ((1, 2.0), (2, 3.0), (3, 1.0)):
        assert removed(capture(store, model, backend)) == []
        age(store, model, days)
    oldest = store.current({"model": 2})
    assert oldest is not None
    receipt = capture(store, 4, backend)
    assert removed(receipt) == [oldest.name]
    assert receipt.settings["store_max_bytes"] == {"value": 3 * BLOB, "source": "explicit"}
    assert models(store) == {1, 3, 4}
    assert list((folder / ".trash").iterdir()) == []
    assert sum(entry.nbytes for entry in store.ls()) == 3 * BLOB


def test_what_is_not_current_goes_first(folder: pathlib.Path) -> None:
    store = coldsnap.Store(folder, max_bytes=3 * BLOB)
    capture(store, 1)
    age(store, 1, 9.0)
    former = capture(store, 2).artifact_root
    capture(store, 2, value=1, replace=True)
    assert removed(capture(store, 3)) == [former]
    assert models(store) == {1, 2, 3}


def test_the_variable_holds_where_no_number_is_given(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(folder, 1)
    monkeypatch.setenv("COLDSNAP_STORE_MAX_BYTES", f"{BLOB}")
    receipt = capture(folder, 2)
    assert receipt.settings["store_max_bytes"] == {"value": BLOB, "source": "environment"}
    assert len(removed(receipt)) == 1
    monkeypatch.setenv("COLDSNAP_STORE_MAX_BYTES", "much")
    with pytest.raises(coldsnap.RequestInvalidError, match="COLDSNAP_STORE_MAX_BYTES"):
        capture(folder, 3)
    assert models(coldsnap.Store(folder)) == {2}


def test_what_is_in_use_stays_and_the_capture_is_refused_with_the_figures(folder: pathlib.Path) -> None:
    store = coldsnap.Store(folder, max_bytes=2 * BLOB + 7)
    capture(store, 1)
    capture(store, 2)
    with store.open({"model": 1}):
        age(store, 1, 9.0)
        assert len(removed(capture(store, 3))) == 1  # the other one
        assert models(store) == {1, 3}
        with store.open({"model": 3}), pytest.raises(coldsnap.PolicyRefusedError) as caught:
            capture(store, 4)
        assert f"a blob of {BLOB} bytes" in caught.value.message
        assert f"its cap is {2 * BLOB + 7} bytes" in caught.value.message
        assert caught.value.message.endswith("leave 7 of them")
        assert "COLDSNAP_STORE_MAX_BYTES" in caught.value.remedy
        assert models(store) == {1, 3}
    assert list((folder / ".incoming").iterdir()) == []


def test_what_never_fits_costs_nobody_an_artifact_nor_a_byte(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(folder, 1)

    def write(work: object, folder: str) -> str:
        raise AssertionError("it writes")

    monkeypatch.setattr("coldsnap.shard_capture.ShardCapture.write", write)
    with pytest.raises(coldsnap.PolicyRefusedError, match=f"leave {BLOB - 1} of them"):
        capture(coldsnap.Store(folder, max_bytes=BLOB - 1), 2)
    assert models(coldsnap.Store(folder)) == {1}


def test_the_identity_s_own_artifact_stays_until_the_next_is_there(folder: pathlib.Path) -> None:
    store = coldsnap.Store(folder, max_bytes=2 * BLOB - 1)
    capture(store, 1)
    before = store.current({"model": 1})
    with pytest.raises(coldsnap.PolicyRefusedError, match="or current for this identity"):
        capture(store, 1, value=1, replace=True)
    assert store.current({"model": 1}) == before
    reasons = [each["code"] for each in capture(store, 1).reasons]  # nothing comes to it, so it needs no room
    assert "already_present" in reasons


def test_ranks_keep_to_it_when_they_publish(folder: pathlib.Path) -> None:
    capture(folder, 1)
    store = coldsnap.Store(folder, max_bytes=2 * BLOB)
    receipts = []

    def of_rank(rank: int) -> None:
        group = coldsnap.RankGroup("a", rank, ["shard-00-00-00", "shard-00-01-00"], timeout_s=60)
        weights = {"w": np.full(192 * KIB, rank, np.uint8)}
        receipts.append(coldsnap.capture_rank(weights, group, store=store, identity={"model": 2}))

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert models(store) == {2}
    assert sorted(map(len, map(removed, receipts))) == [0, 1]
    assert all(each.settings["store_max_bytes"]["value"] == 2 * BLOB for each in receipts)


def test_a_packed_artifact_keeps_to_it_too(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    capture(folder, 1)
    path = coldsnap.Store(folder).current({"model": 1})
    assert path is not None
    packing.pack(path, tmp_path / "a.tar")
    other = coldsnap.Store(tmp_path / "other", max_bytes=2 * BLOB - 1)
    capture(other, 2)
    with other.open({"model": 2}), pytest.raises(coldsnap.PolicyRefusedError):
        packing.unpack(tmp_path / "a.tar", other)
    assert models(other) == {2}
    assert len(packing.unpack(tmp_path / "a.tar", other).removed) == 1
    assert models(other) == {1}
    assert list((other.path / ".trash").iterdir()) == []
