"""How the ranks of one capture hear of each other, and when their shards become an artifact.

The ranks meet in a folder of the store, ``STORE/.ranks/<token>``, by small files that are moved there whole, so any file
system that they share will do. Rank 0 coordinates:

    begin.json         rank 0: there is a folder to build in
    alive-<n>          touched by rank n as long as it works
    rank-<n>.json      rank n: its shard's record
    failed-<n>.json    rank n: why there is none
    verdict.json       rank 0: published, or why not; the last word

Whoever fails says so and raises; whoever is silent for too long fails all the others. Times are compared with nobody's
clock: a rank is alive if its file has changed since it was last looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from coldsnap import errors, receipts, records
from coldsnap.new_file import make_folders, read_small, remove_tree, replace_file
from coldsnap.ranks import SHARD, RankGroup
from coldsnap.shard_capture import ShardCapture
from coldsnap.store import INCOMING, Published, Store
from coldsnap.ticker import Ticker
from coldsnap.values import digest_of

RANKS = ".ranks"
FORMAT = 1
_BEGIN, _VERDICT = "begin.json", "verdict.json"
_POLL_S, _LOOK_S = 0.05, 0.25
_CLEAR_S = 10.0
_STOP_S = 5.0  # a rank at work gives a sign four times a second, and looks at the verdict as often
_STALE_S = 24 * 3600.0
_MAX_BYTES = 16 << 20

_FAILURE = records.record(
    code=records.text(r"[a-z_]{1,40}"),
    message=records.text(r"[^\x00]{0,4000}"),
    remedy=records.text(r"[^\x00]{0,4000}"),
)
_BEGIN_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT),
    identity=records.text(records.HEX64),
    shards=records.array(records.text(SHARD)),
)
_RANK_SCHEMA = records.record(format=records.whole(FORMAT, FORMAT), record=records.text(r"[^\x00-\x1f]{1,2000}"))
_VERDICT_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT),
    artifact_root=records.optional(records.text(records.HEX64)),
    already_present=records.whole(0, 1),
    failure=records.optional(_FAILURE),
)


class Meeting:
    """What one rank says to the others and hears from them."""

    def __init__(self, store: Store, group: RankGroup, identity: str, cancel: threading.Event | None) -> None:
        self.identity = identity
        self._store, self._group, self._cancel = store, group, cancel
        self._folder = store.path / RANKS / group.token
        self._building = store.path / INCOMING / group.token
        self._next_look = 0.0
        self._heard: dict[int, tuple[int, float]] = {}  # rank -> (mtime of its file, when that was new)

    @contextlib.contextmanager
    def taking_part(self) -> Iterator[None]:
        """Whatever fails within is said to the others."""
        make_folders(self._folder)
        try:
            self._alive()
            yield
        except BaseException as failure:
            self._say_failure(failure)
            raise

    def watched(self, ticker: Ticker) -> Callable[[int, int], bool]:
        """The ticker, which now also tells the others that this rank works, and ends it when another one failed."""

        def tick(done: int, total: int) -> bool:
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + _LOOK_S
                self._alive()
                self._raise_another_s_failure()
            return ticker(done, total)

        return tick

    def lead(self, work: ShardCapture, replace: bool) -> tuple[Published, float]:
        """Rank 0: make the place to build in, write, wait for all the others, publish, and say so."""
        self._remove_stale()
        if (self._folder / _BEGIN).exists() or (self._folder / _VERDICT).exists():
            raise errors.RequestInvalidError(
                f"{self._doing}: its token {self._group.token!r} was used before", remedy="give each attempt its own"
            )
        incoming = self._store.create_incoming(self._group.token)
        try:
            self._say(_BEGIN, identity=digest_of(self.identity), shards=list(self._group.shards))
            mine = work.write(incoming.path)
            shards = self._agreed({0: mine, **self._collect()})
            begin = time.monotonic()
            published = self._store.publish(incoming, shards, self.identity, work.about(), replace)
        except BaseException as failure:
            self._say_failure(failure)
            self._let_them_stop()
            raise
        finally:
            incoming.close()
        self._say(
            _VERDICT,
            artifact_root=published.artifact_root,
            already_present=int(published.already_present),
            failure=None,
        )
        publish_s = time.monotonic() - begin
        self._clear()
        return published, publish_s

    def follow(self, work: ShardCapture) -> tuple[Published, float]:
        """Another rank: wait for the place to build in, write or compare, say so, and wait for the verdict."""
        begun = self._await(_BEGIN, _BEGIN_SCHEMA)
        if begun["identity"] != digest_of(self.identity) or begun["shards"] != list(self._group.shards):
            what = "shards" if begun["identity"] == digest_of(self.identity) else "identity"
            raise errors.PolicyRefusedError(
                f"{self._doing}: rank {self._group.rank} and rank 0 disagree on the {what}",
                stage="publish",
                remedy="give every rank the same",
            )
        # Rank 0 may have failed before this one gave a sign of life, and waits for nobody then.
        self._raise_another_s_failure()
        try:
            record = work.write(str(self._building)) if self._group.writes else work.digest()
        except errors.Error:
            self._raise_another_s_failure()  # of which this one may be the consequence
            raise
        mine = f"rank-{self._group.rank}.json"
        self._say(mine, record=record)
        begin = time.monotonic()
        verdict = self._await(_VERDICT, _VERDICT_SCHEMA)
        if verdict["failure"] is not None:
            raise self._failure_of(0, verdict["failure"])
        with contextlib.suppress(OSError):  # it tells rank 0 that this one needs the folder no more
            os.unlink(self._folder / mine)
        root = verdict["artifact_root"]
        path = self._store.path / digest_of(self.identity) / root
        return Published(root, path, bool(verdict["already_present"])), time.monotonic() - begin

    @property
    def _doing(self) -> str:
        return f"capture {len(self._group.shards)} ranks"

    def _say(self, name: str, **fields: Any) -> None:
        known = fields if name.startswith("failed-") else {"format": FORMAT, **fields}
        replace_file(self._folder, name, json.dumps(known).encode())

    def _say_failure(self, failure: BaseException) -> None:
        entry = receipts.error_entry(failure)
        said = {name: entry[name][:4000].replace("\0", "") for name in ("code", "message", "remedy")}
        with contextlib.suppress(errors.Error):  # this rank's own failure is the one to raise
            if self._group.rank == 0:
                self._say(_VERDICT, artifact_root=None, already_present=0, failure=said)
            else:
                self._say(f"failed-{self._group.rank}.json", **said)

    def _alive(self) -> None:
        path = self._folder / f"alive-{self._group.rank}"
        with contextlib.suppress(OSError):  # a sign that is missed once is made again
            path.touch()

    def _read(self, name: str, schema: records.Check) -> dict[str, Any] | None:
        data = read_small(self._folder / name, _MAX_BYTES)
        if data is None:
            return None
        try:
            found: dict[str, Any] = records.load(data, schema)
        except ValueError as cause:
            raise errors.FormatInvalidError(f"{self._doing}: read {name}: {cause}", stage="publish") from cause
        return found

    def _await(self, name: str, schema: records.Check) -> dict[str, Any]:
        """What rank 0 says, once it has."""
        self._heard.clear()
        while (found := self._read(name, schema)) is None:
            self._raise_another_s_failure()
            self._rest([0])
        return found

    def _collect(self) -> dict[int, str]:
        """Rank 0: the records of all the others, once they are there."""
        self._heard.clear()
        found: dict[int, str] = {}
        others = range(1, len(self._group.shards))
        while missing := [rank for rank in others if rank not in found]:
            self._raise_another_s_failure()
            for rank in missing:
                said = self._read(f"rank-{rank}.json", _RANK_SCHEMA)
                if said is not None:
                    found[rank] = said["record"]
            silent = [rank for rank in missing if rank not in found]
            if silent:
                self._rest(silent)
        return found

    def _let_them_stop(self) -> None:
        """Rank 0, after the verdict and before the folder goes: what others still write would stay in it."""
        self._heard.clear()
        with contextlib.suppress(errors.TimedOutError):  # one that is dead writes nothing
            while writing := [rank for rank in range(1, len(self._group.shards)) if self._is_at_work(rank)]:
                self._require_signs_of(writing, _STOP_S)
                time.sleep(_POLL_S)

    def _is_at_work(self, rank: int) -> bool:
        ended = (self._folder / name for name in (f"rank-{rank}.json", f"failed-{rank}.json"))
        return (self._folder / f"alive-{rank}").exists() and not any(path.exists() for path in ended)

    def _rest(self, ranks: Sequence[int]) -> None:
        """Wait a little for ranks, or end the waiting: cancelled, or one of them silent for too long."""
        if self._cancel is not None and self._cancel.is_set():
            raise errors.Cancelled(f"{self._doing}: rank {self._group.rank} was cancelled while it waited")
        self._require_signs_of(ranks, self._group.timeout_s)
        self._alive()
        time.sleep(_POLL_S)

    def _require_signs_of(self, ranks: Sequence[int], limit_s: float) -> None:
        now = time.monotonic()
        for rank in ranks:
            try:
                mtime_ns = (self._folder / f"alive-{rank}").stat().st_mtime_ns
            except OSError:
                mtime_ns = 0
            if self._heard.get(rank, (-1, 0.0))[0] != mtime_ns:
                self._heard[rank] = (mtime_ns, now)
            elif now - self._heard[rank][1] > limit_s:
                raise errors.TimedOutError(
                    f"{self._doing}: rank {self._group.rank} heard nothing of rank {rank} ({self._group.shards[rank]}) "
                    f"for {limit_s:g} s",
                    stage="publish",
                    remedy="look why that rank stopped, or allow more time",
                )

    def _raise_another_s_failure(self) -> None:
        if self._group.rank != 0:
            verdict = self._read(_VERDICT, _VERDICT_SCHEMA)
            if verdict is not None and verdict["failure"] is not None:
                raise self._failure_of(0, verdict["failure"])
            return
        for path in self._folder.glob("failed-*.json"):
            failure = self._read(path.name, _FAILURE)
            if failure is not None:
                raise self._failure_of(int(path.stem.partition("-")[2]), failure)

    def _failure_of(self, rank: int, failure: Mapping[str, str]) -> errors.Error:
        said = failure["message"]
        text = said if said.startswith(self._doing) else f"{self._doing}: rank {rank} failed: {said}"
        return errors.from_native(failure["code"], text, "publish", failure["remedy"], "", 0)

    def _agreed(self, found: Mapping[int, str]) -> list[str]:
        """The records of all shards: replicas agree, and every shard's description lies in the folder as it was said."""
        for rank, shard in enumerate(self._group.shards):
            writer = self._group.shards.index(shard)
            mine, written = json.loads(found[rank]), json.loads(found[writer])
            if mine.get("name") != shard or mine != written:
                raise errors.PolicyRefusedError(
                    f"{self._doing}: rank {rank} has {shard} with the root {mine.get('shard_root')}, and rank {writer}, "
                    f"which wrote it, {written.get('shard_root')}",
                    stage="publish",
                    remedy="find out why replicas differ, or give them shards of their own",
                )
        written_by = sorted({self._group.shards.index(shard) for shard in self._group.shards})
        for rank in written_by:
            self._require_manifest(rank, json.loads(found[rank]))
        return [found[rank] for rank in written_by]

    def _require_manifest(self, rank: int, record: Mapping[str, Any]) -> None:
        path = self._building / record["name"] / "manifest.json"
        data = read_small(path, record["manifest_bytes"])
        if data is None or hashlib.sha256(data).hexdigest() != record["manifest_sha256"]:
            raise errors.DataLossError(
                f"{self._doing}: {record['name']}/manifest.json of rank {rank} is "
                f"{'not there' if data is None else 'not the one that it wrote'}",
                stage="publish",
                remedy="let all ranks use the same file system for the store",
            )

    def _clear(self) -> None:
        """Rank 0: remove the folder once nobody needs it; what a dead rank keeps goes with a later capture.

        So does what can't be removed: the artifact is published, and that is what is to be said.
        """
        until = time.monotonic() + _CLEAR_S
        while any(self._folder.glob("rank-*.json")):
            if time.monotonic() > until:
                return
            time.sleep(_POLL_S)
        with contextlib.suppress(errors.Error):  # on NFS a file that somebody is still reading stays for a moment
            remove_tree(self._folder)

    def _remove_stale(self) -> None:
        """What meetings of other tokens left that ended long ago; a new file in one makes it young."""
        for path in self._folder.parent.iterdir():
            with contextlib.suppress(OSError):
                if path != self._folder and time.time() - path.stat().st_mtime > _STALE_S:
                    remove_tree(path)
