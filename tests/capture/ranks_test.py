"""Captures of several ranks: one artifact of all shards, or nothing and the same reason in every rank."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import Store, errors, meeting, shard_capture
from coldsnap.ranks import RankGroup, capture_rank
from tests.capture import helpers

LEFT, RIGHT = "shard-00-00-00", "shard-00-01-00"
TWO, REPLICATED = (LEFT, RIGHT), (LEFT, RIGHT, LEFT, RIGHT)
IDENTITY = {"model": "of ranks"}
PATIENT, IMPATIENT = 60.0, 0.5

Outcome = coldsnap.Receipt | Exception


def weights(shard: str, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"w": np.full(100_000, value + (shard == RIGHT)), "bias": np.full(7, value, np.float32)}


def run(store: pathlib.Path, shards: tuple[str, ...], token: str = "one", **more: Any) -> list[Outcome]:
    """Every rank in a thread of its own; ``more`` goes to all of them, but for what is by rank (a function)."""

    def rank(number: int) -> Outcome:
        own = {name: value(number) if callable(value) else value for name, value in more.items()}
        group = RankGroup(own.pop("token", token), number, own.pop("as_seen", shards), own.pop("timeout_s", PATIENT))
        tensors = own.pop("tensors", weights(shards[number]))
        try:
            return capture_rank(tensors, group, store=store, **{"identity": IDENTITY, **own})
        except Exception as failure:
            return failure

    with concurrent.futures.ThreadPoolExecutor(len(shards)) as threads:
        return list(threads.map(rank, range(len(shards))))


def assert_nothing_is_there(store: pathlib.Path) -> None:
    assert Store(store).ls() == []
    assert helpers.names_in(store / ".incoming") == []


def wait_for_the_verdict(store: pathlib.Path) -> None:
    until = time.monotonic() + PATIENT
    while not (store / ".ranks" / "one" / "verdict.json").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def failures(outcomes: list[Outcome]) -> list[coldsnap.Error]:
    for outcome in outcomes:
        assert isinstance(outcome, coldsnap.Error), outcome
        assert outcome.receipt is not None
        assert not outcome.receipt.ok
    return [outcome for outcome in outcomes if isinstance(outcome, coldsnap.Error)]


@pytest.mark.parametrize("backend", helpers.BACKENDS)
@pytest.mark.parametrize("shards", [(LEFT,), TWO, REPLICATED], ids=len)
def test_all_shards_appear_as_one_artifact(backend: str, shards: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    receipts = [outcome for outcome in run(tmp_path, shards, backend=backend) if isinstance(outcome, coldsnap.Receipt)]
    assert len(receipts) == len(shards)
    assert len({receipt.artifact_root for receipt in receipts}) == 1
    written = [bool(receipt.routes) for receipt in receipts]
    assert written == [shards.index(shard) == rank for rank, shard in enumerate(shards)]
    assert ["replica" in helpers.codes(receipt) for receipt in receipts] == [not wrote for wrote in written]
    assert sorted(path.name for path in tmp_path.glob(".*/*")) == []  # nobody is building or meeting any more

    store = Store(tmp_path)
    for shard in set(shards):
        with store.open(IDENTITY, shard=shard) as artifact:
            assert artifact.artifact_root == receipts[0].artifact_root
            assert artifact.shards == tuple(sorted(set(shards)))
            found = helpers.destinations(artifact)
            coldsnap.hydrate(artifact, found)
        helpers.assert_same_bits(found, weights(shard))
    assert coldsnap.verify(store.current(IDENTITY)).ok


def test_a_meeting_s_folder_that_stays_is_no_failure(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = []

    def stays(path: pathlib.Path) -> None:
        busy.append(path)
        raise errors.IoError(f"remove {path}: Directory not empty")

    monkeypatch.setattr(meeting, "remove_tree", stays)
    assert [getattr(outcome, "ok", outcome) for outcome in run(tmp_path, TWO)] == [True, True]
    assert busy == [tmp_path / ".ranks" / "one"]


def test_ranks_that_are_processes(tmp_path: pathlib.Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys
        import numpy as np
        from coldsnap.ranks import RankGroup, capture_rank

        rank, shards = int(sys.argv[2]), {REPLICATED!r}
        group = RankGroup("t", rank, shards, {PATIENT})
        weights = {{"w": np.full(300_000, float(rank % 2))}}
        receipt = capture_rank(weights, group, store=sys.argv[1], identity={IDENTITY!r}, backend="auto")
        print(receipt.artifact_root)
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([*command, str(rank)], **pipes) for rank in (3, 2, 1, 0)]
    roots = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 4
    [entry] = Store(tmp_path).ls()
    assert roots == {entry.artifact_root}
    assert coldsnap.verify(entry.path).ok
    assert sorted(path.name for path in tmp_path.glob(".*/*")) == []


def test_the_same_again_is_already_present(tmp_path: pathlib.Path) -> None:
    first = run(tmp_path, REPLICATED)
    again = run(tmp_path, REPLICATED, "two")
    assert len({receipt.artifact_root for receipt in [*first, *again]}) == 1
    assert all("already_present" in helpers.codes(receipt) for receipt in again)
    assert not any("already_present" in helpers.codes(receipt) for receipt in first)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_fails_fails_all(failing: int, tmp_path: pathlib.Path) -> None:
    bad = {"w": np.zeros(4)[::-1]}
    outcomes = failures(
        run(tmp_path, REPLICATED, tensors=lambda rank: bad if rank == failing else weights(REPLICATED[rank]))
    )
    assert {failure.code for failure in outcomes} == {"request_invalid"}
    assert "'w'" in outcomes[failing].message
    for rank, failure in enumerate(outcomes):
        assert rank == failing or f"rank {failing} failed" in failure.message
        assert rank == failing or "are negative" in failure.message
    assert_nothing_is_there(tmp_path)


def test_a_rank_that_never_comes_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    three = (*TWO, "shard-00-02-00")

    def only_two(rank: int) -> Any:
        if rank == 2:
            raise coldsnap.InternalError("this rank is not there")
        return weights(three[rank])

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        started = [
            threads.submit(
                capture_rank, only_two(rank), RankGroup("t", rank, three, IMPATIENT), store=tmp_path, identity=IDENTITY
            )
            for rank in (0, 1)
        ]
        outcomes = failures([future.exception() for future in started])  # type: ignore[misc]
    assert {failure.code for failure in outcomes} == {"timeout"}
    assert all("rank 0 heard nothing of rank 2 (shard-00-02-00) for 0.5 s" in failure.message for failure in outcomes)
    assert_nothing_is_there(tmp_path)


def test_without_rank_0_nothing_begins(tmp_path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.TimedOutError, match="rank 1 heard nothing of rank 0"):
        capture_rank(weights(RIGHT), RankGroup("t", 1, TWO, IMPATIENT), store=tmp_path, identity=IDENTITY)
    assert_nothing_is_there(tmp_path)


def test_a_rank_that_is_killed(tmp_path: pathlib.Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, signal, sys
        import numpy as np
        from coldsnap.ranks import RankGroup, capture_rank

        class Killer:
            looks = 0
            def is_set(self):
                self.looks += 1
                if self.looks == 6:
                    os.kill(os.getpid(), signal.SIGKILL)
                return False

        group = RankGroup("t", 1, {TWO!r}, 60)
        capture_rank({{"w": np.zeros(3 << 20)}}, group, store=sys.argv[1], identity={IDENTITY!r}, cancel=Killer())
        """
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as child:
        with pytest.raises(coldsnap.TimedOutError, match="rank 1"):
            capture_rank(weights(LEFT), RankGroup("t", 0, TWO, 3.0), store=tmp_path, identity=IDENTITY)
        assert child.wait() == -9
    assert_nothing_is_there(tmp_path)


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_cancelled_rank_cancels_all(cancelled: int, tmp_path: pathlib.Path) -> None:
    event = threading.Event()
    event.set()
    outcomes = failures(run(tmp_path, TWO, cancel=lambda rank: event if rank == cancelled else None))
    assert {failure.code for failure in outcomes} == {"cancelled"}
    assert_nothing_is_there(tmp_path)


def test_replicas_that_differ_are_refused(tmp_path: pathlib.Path) -> None:
    outcomes = failures(
        run(tmp_path, REPLICATED, tensors=lambda rank: weights(REPLICATED[rank], 9.0 if rank == 3 else 1.0))
    )
    assert {failure.code for failure in outcomes} == {"policy_refused"}
    assert all(f"rank 3 has {RIGHT} with the root" in failure.message for failure in outcomes)
    assert_nothing_is_there(tmp_path)


def test_ranks_that_disagree_are_refused(tmp_path: pathlib.Path) -> None:
    outcomes = failures(run(tmp_path, TWO, identity=lambda rank: {"model": rank}))
    assert {failure.code for failure in outcomes} == {"policy_refused"}
    assert all("rank 1 and rank 0 disagree on the identity" in failure.message for failure in outcomes)
    outcomes = failures(run(tmp_path, TWO, "two", as_seen=lambda rank: TWO if rank == 0 else (LEFT, "shard-01-00-00")))
    assert all("disagree on the shards" in failure.message for failure in outcomes)
    assert_nothing_is_there(tmp_path)


def test_a_shard_that_is_not_where_rank_0_looks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shard_capture.ShardCapture.write

    def elsewhere(self: Any, folder: str) -> str:
        if self.shard == LEFT:
            return real(self, folder)
        other = tmp_path / "another file system"
        other.mkdir()
        return real(self, str(other))

    monkeypatch.setattr(shard_capture.ShardCapture, "write", elsewhere)
    outcomes = failures(run(tmp_path / "store", TWO))
    assert {failure.code for failure in outcomes} == {"data_loss"}
    assert all(f"{RIGHT}/manifest.json of rank 1 is not there" in failure.message for failure in outcomes)
    assert_nothing_is_there(tmp_path / "store")


def test_the_folder_goes_when_nobody_writes_into_it_any_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = threading.Event()

    def write(self: Any, folder: str) -> str:
        if self.shard == LEFT:
            assert at_work.wait(PATIENT)
            raise coldsnap.IoError("the drive of rank 0")
        at_work.set()
        wait_for_the_verdict(tmp_path)
        for _ in range(20):  # the end of a write, while rank 0 has done with all this
            if pathlib.Path(folder).exists():
                time.sleep(0.05)
        (pathlib.Path(folder) / self.shard).mkdir(parents=True)
        raise coldsnap.IoError("the drive of rank 1")

    monkeypatch.setattr(shard_capture.ShardCapture, "write", write)
    outcomes = failures(run(tmp_path, TWO))
    assert at_work.is_set()
    assert all("the drive of rank 0" in failure.message for failure in outcomes)
    assert_nothing_is_there(tmp_path)


def test_who_comes_when_rank_0_has_failed_writes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def write(self: Any, folder: str) -> str:
        began.append(self.shard)
        raise coldsnap.IoError(f"the drive of {self.shard}")

    def late(rank: int) -> dict[str, np.ndarray]:
        if rank == 1:
            wait_for_the_verdict(tmp_path)
        return weights(TWO[rank])

    monkeypatch.setattr(shard_capture.ShardCapture, "write", write)
    outcomes = failures(run(tmp_path, TWO, tensors=late))
    assert all(f"the drive of {LEFT}" in failure.message for failure in outcomes)
    assert began == [LEFT]


def test_a_token_serves_once(tmp_path: pathlib.Path) -> None:
    bad = {"w": np.zeros(4)[::-1]}
    failures(run(tmp_path, (LEFT,), tensors=bad))
    [again] = failures(run(tmp_path, (LEFT,)))
    assert again.code == "request_invalid"
    assert "'one' was used before" in again.message
    assert_nothing_is_there(tmp_path)


def test_what_old_meetings_left_is_removed(tmp_path: pathlib.Path) -> None:
    for token in ("old", "young"):
        failures(run(tmp_path, (LEFT,), token, tensors={"w": np.zeros(4)[::-1]}))
    assert sorted(path.name for path in (tmp_path / ".ranks").iterdir()) == ["old", "young"]
    os.utime(tmp_path / ".ranks" / "old", (1e9, 1e9))
    [receipt] = run(tmp_path, (LEFT,), "new")
    assert isinstance(receipt, coldsnap.Receipt)
    assert [path.name for path in (tmp_path / ".ranks").iterdir()] == ["young"]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (RankGroup("../x", 0, TWO), "'../x' is no token"),
        (RankGroup("", 0, TWO), "is no token"),
        (RankGroup("t", 2, TWO), "rank 2 is none of 2"),
        (RankGroup("t", 0, ("shard-0-0-0",)), "'shard-0-0-0' is no shard"),
        (RankGroup("t", 0, ("../shard-00-00-00",)), "is no shard"),
        (RankGroup("t", 0, TWO, 0), "the time limit is 0 s"),
        (("t", 0, TWO), "the group is a tuple"),
    ],
)
def test_groups(group: Any, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=message):
        capture_rank(weights(LEFT), group, store=tmp_path, identity=IDENTITY)
    assert helpers.names_in(tmp_path) == []
