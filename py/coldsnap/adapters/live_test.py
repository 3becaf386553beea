"""Captures beside an engine that serves: whole or not at all, of what was loaded and nothing else, by all ranks or none."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

import coldsnap
from coldsnap import errors
from coldsnap.adapters import live, sums
from coldsnap.adapters.beside import BesideRanks
from coldsnap.adapters.live import Did, Live, Plan
from coldsnap.adapters.verdict import Alone
from coldsnap.receipts import Receipt
from coldsnap.settings import Setting
from coldsnap.store import Store

IDENTITY = {"model": "example"}
FAST = 1 << 40
LOADED = Did("loaded")


class Told:
    """What was told of captures."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.failures: list[str] = []

    def captured(self, receipt: Receipt, nbytes: int, seconds: float) -> None:
        self.receipts.append(receipt)

    def failed(self, failure: BaseException) -> None:
        self.failures.append(str(failure))


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {"a": torch.randn(300, 500, generator=random), "b": torch.randn(7, generator=random)}


def plan(tensors: dict[str, torch.Tensor], store: pathlib.Path | None, **other: Any) -> Plan:
    found = Plan(
        arguments={"tensors": tensors, "scalars": {"coldsnap.stage": "final"}},
        before=sums.of(tensors),
        identity=IDENTITY,
        shard="shard-00-00-00",
        token="launch",
        place=Setting("" if store is None else str(store), "explicit"),
        replace=False,
        rate=FAST,
    )
    return found._replace(**other)


def alone(found: Plan | None, did: Did = LOADED) -> tuple[Live, Told]:
    told = Told()
    return Live(did, Alone(), found, told), told


def names_in(store: pathlib.Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*")} if store.exists() else set()


def test_what_was_loaded_is_captured_and_then_let_go(tmp_path: pathlib.Path) -> None:
    tensors = weights()
    one, told = alone(plan(tensors, tmp_path))
    assert one.status()["weights"] == "unchanged" and one.status()["capture"] == "planned"
    seen: list[tuple[int, int]] = []

    taken = one.capture(None, lambda done, total: seen.append((done, total)))

    restored = {name: torch.empty_like(each) for name, each in tensors.items()}
    with coldsnap.open(taken.path) as artifact:
        coldsnap.hydrate(artifact, restored)
    assert all(torch.equal(restored[name], tensors[name]) for name in tensors)
    assert taken.path == Store(tmp_path).current(IDENTITY)
    assert (taken.tensors, seen[-1][0]) == (2, seen[-1][1])
    assert [receipt.artifact_root for receipt in told.receipts] == [taken.path.name]
    assert taken.receipt.settings["backend"] == {"value": "python", "source": "explicit"}
    status = one.status()
    assert (status["start"], status["artifact_root"], status["capture"]) == ("captured", taken.path.name, "none")
    assert not one.planned
    with pytest.raises(errors.ExistsError, match=taken.path.name):
        one.capture(None)


@pytest.mark.parametrize(
    ("did", "words"), [(Did("restored", "a" * 64), "a" * 64), (Did("captured", "b" * 64), "b" * 64)]
)
def test_what_is_an_artifact_already_is_named(did: Did, words: str) -> None:
    one, told = alone(None, did)
    with pytest.raises(errors.ExistsError, match=words):
        one.capture("/a/store")
    assert not told.failures


def test_where_nothing_was_kept_the_reason_is_said() -> None:
    one, _ = alone(None, Did("loaded", None, "the model can't be identified"))
    with pytest.raises(errors.PolicyRefusedError, match="the model can't be identified"):
        one.capture(None)


def test_weights_that_changed_are_refused_and_let_go(tmp_path: pathlib.Path) -> None:
    tensors = weights()
    one, told = alone(plan(tensors, tmp_path))
    tensors["a"][17, 3] += 1
    assert one.status()["weights"] == "changed"
    with pytest.raises(errors.PolicyRefusedError, match="1 of 2 storages have changed, a"):
        one.capture(None)
    assert len(told.failures) == 1
    assert not one.planned and one.status()["weights"] == "changed"
    tensors["a"][17, 3] -= 1
    with pytest.raises(errors.PolicyRefusedError, match="not those any more that it loaded"):
        one.capture(None)
    assert Store(tmp_path).current(IDENTITY) is None


@pytest.mark.parametrize("share", [0.3, 0.8, 1.0], ids=["copied", "compared", "done"])
def test_weights_that_change_meanwhile_are_not_published(tmp_path: pathlib.Path, share: float) -> None:
    tensors = {"a": torch.zeros(6 << 20, dtype=torch.uint8)}  # of two chunks
    one, told = alone(plan(tensors, tmp_path))
    fired = []

    def change(done: int, total: int) -> None:
        if done >= share * total and not fired:
            fired.append(done)
            tensors["a"][0] = 1  # a piece that was copied long ago

    with pytest.raises(errors.Error, match="changed"):
        one.capture(None, change)
    assert fired and len(told.failures) == 1
    assert Store(tmp_path).current(IDENTITY) is None
    assert not [name for name in names_in(tmp_path) if "weights.safetensors" in name]


def test_sleep_waits_for_the_reader_and_ends_the_capture(tmp_path: pathlib.Path) -> None:
    tensors = weights()
    one, _ = alone(plan(tensors, tmp_path))
    slept = threading.Event()

    def fall_asleep() -> None:
        one.before_sleep()
        assert not one._memory.locked()  # nobody reads any more
        slept.set()

    sleeper = threading.Thread(target=fall_asleep)

    def sleepy(done: int, total: int) -> None:
        if not sleeper.ident:
            sleeper.start()
            assert one._stop.wait(30)
            assert not slept.is_set()

    with pytest.raises(errors.PolicyRefusedError, match="it was put to sleep meanwhile"):
        one.capture(None, sleepy)
    sleeper.join()
    assert slept.is_set()
    assert one.status()["weights"] == "asleep"
    with pytest.raises(errors.PolicyRefusedError, match="it sleeps"):
        one.capture(None)
    assert Store(tmp_path).current(IDENTITY) is None
    one.after_wake()
    assert one.capture(None).path == Store(tmp_path).current(IDENTITY)


def test_one_capture_at_a_time(tmp_path: pathlib.Path) -> None:
    one, _ = alone(plan(weights(), tmp_path))
    refusals: list[BaseException] = []

    def another(done: int, total: int) -> None:
        if not refusals:
            with pytest.raises(errors.PolicyRefusedError, match="a capture of it is under way") as refusal:
                one.capture(None)
            refusals.append(refusal.value)
            assert one.status()["capture"] == "running"

    one.capture(None, another)
    assert refusals


def test_the_end_of_the_process_leaves_nothing_half_written(tmp_path: pathlib.Path) -> None:
    tensors = {"a": torch.zeros(12 << 20, dtype=torch.uint8)}
    one, told = alone(plan(tensors, tmp_path, rate=1 << 20))  # seconds for each chunk
    one.begin(one.first)
    while one.status()["done_bytes"] == 0:
        assert not told.failures
    one.end()
    assert [failure.rpartition(": ")[2] for failure in told.failures] == ["it ends"]
    assert Store(tmp_path).current(IDENTITY) is None
    assert not [name for name in names_in(tmp_path) if "weights.safetensors" in name]


_CHILD = """
import sys
import types

import torch

from coldsnap.adapters import sums
from coldsnap.adapters.live import Did, Live, Plan
from coldsnap.adapters.verdict import Alone
from coldsnap.settings import Setting

tensors = {"a": torch.zeros(12 << 20, dtype=torch.uint8)}
place = Setting(sys.argv[1], "explicit")
plan = Plan({"tensors": tensors}, sums.of(tensors), {"model": "example"}, "", "launch", place, False, 1 << 20)
one = Live(Did("loaded"), Alone(), plan, types.SimpleNamespace(failed=print))
one.capture(None, lambda done, total: print(done, flush=True))
"""


def test_a_process_that_is_killed_leaves_no_artifact_and_nothing_in_the_way(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", _CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) == 0:
            pass
        child.kill()
    half = [path for path in tmp_path.rglob("weights.safetensors")]
    assert len(half) == 1  # it was killed in the middle
    assert Store(tmp_path).current(IDENTITY) is None and not Store(tmp_path).ls()
    one, _ = alone(plan(weights(), tmp_path))
    assert one.capture(None).path == Store(tmp_path).current(IDENTITY)
    assert not half[0].exists()


def test_where_nobody_can_ask_again_the_weights_are_let_go(tmp_path: pathlib.Path) -> None:
    coldsnap.capture(weights(1), store=tmp_path, identity=IDENTITY)
    for once in (True, False):
        one, told = alone(plan(weights(), tmp_path, once=once))
        one.first()
        assert "another process has captured it meanwhile" in told.failures[0]
        assert one.planned is not once


def test_another_store_and_none(tmp_path: pathlib.Path) -> None:
    one, _ = alone(plan(weights(), None))
    with pytest.raises(errors.PolicyRefusedError, match="no store is known"):
        one.capture(None)
    assert one.capture(str(tmp_path / "named")).path == Store(tmp_path / "named").current(IDENTITY)


def test_what_another_process_has_captured_is_not_captured_again(tmp_path: pathlib.Path) -> None:
    tensors = weights()
    root = coldsnap.capture(weights(1), store=tmp_path, identity=IDENTITY).artifact_root
    one, told = alone(plan(tensors, tmp_path))
    with pytest.raises(errors.ExistsError, match=f"another process has captured it meanwhile, as {root}"):
        one.capture(None)
    assert len(told.failures) == 1
    replacing, _ = alone(plan(tensors, tmp_path, replace=True))
    assert replacing.capture(None).path.name != root


class Two:
    """Two ranks of one engine; rank 1 follows in a thread."""

    def __init__(self, store: pathlib.Path) -> None:
        keys, self.told = torch.distributed.HashStore(), Told()
        self.tensors = [weights(rank) for rank in range(2)]
        self.ranks = [
            Live(
                Did("loaded"),
                BesideRanks(keys, "launch", rank, 2),
                plan(self.tensors[rank], store, shard=f"shard-00-{rank:02d}-00"),
                self.told,
            )
            for rank in range(2)
        ]
        self.ranks[1].begin(self.ranks[1].follow)

    def end(self) -> None:
        for rank in self.ranks:
            rank.end()


def test_two_ranks_make_one_artifact(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_LOOK_S", 0.01)
    two = Two(tmp_path)
    taken = two.ranks[0].capture(None)
    two.ranks[1]._threads[0].join(30)
    for rank in range(2):
        restored = {name: torch.empty_like(each) for name, each in two.tensors[rank].items()}
        with coldsnap.open(taken.path, shard=f"shard-00-{rank:02d}-00") as artifact:
            coldsnap.hydrate(artifact, restored)
        assert all(torch.equal(restored[name], two.tensors[rank][name]) for name in restored)
        assert two.ranks[rank].status()["artifact_root"] == taken.path.name
    two.end()


def test_one_rank_s_other_weights_refuse_both_and_the_next_attempt_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_LOOK_S", 0.01)
    two = Two(tmp_path)
    two.tensors[1]["b"][0] += 1
    with pytest.raises(errors.PolicyRefusedError, match="rank 1: its weights are not those any more"):
        two.ranks[0].capture(None)
    assert two.ranks[0].planned and not two.ranks[1].planned
    with pytest.raises(errors.PolicyRefusedError, match=r"rank 1: .*not those any more"):
        two.ranks[0].capture(None)
    assert Store(tmp_path).current(IDENTITY) is None
    two.end()


def test_a_rank_that_is_gone_is_not_waited_for_long(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_LOOK_S", 0.01)
    monkeypatch.setattr(live, "_ANSWER_S", 0.1)
    two = Two(tmp_path)
    two.ranks[1].end()
    with pytest.raises(errors.TimedOutError, match="rank 1 said nothing"):
        two.ranks[0].capture(None)
    two.end()
