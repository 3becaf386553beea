"""A store: artifacts by identity and root, and for each identity the one that is current.

    STORE/<identity digest>/current               {"artifact_root":"<hex>","format":1}, replaced by a rename
    STORE/<identity digest>/<artifact root>/      an artifact, which never changes
    STORE/.incoming/                              what is being captured
    STORE/.trash/                                 what is being removed
    STORE/.lock                                   held while an artifact appears or goes, and `current` with it

An artifact that is open has a shared lock (flock) on its blob, which the kernel gives back when the process ends, so
`Store.gc` knows what is in use. What it removes it first moves to ``.trash``: nobody sees half of an artifact.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import errors, settings, stored
from coldsnap.artifact import Artifact, load_native, open_artifact, shard_names
from coldsnap.new_file import make_folder, make_folders, remove_tree, saying, sync_folder
from coldsnap.stored import StoredArtifact, shard_folders
from coldsnap.values import canonical, digest_of
from coldsnap.verify import verify

INCOMING, TRASH, _LOCK = ".incoming", ".trash", ".lock"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOB = "weights.safetensors"


class Published(NamedTuple):
    """What became of a capture: its root, its folder, whether the store had it already, and what went to make room."""

    artifact_root: str
    path: Path
    already_present: bool
    removed: tuple[StoredArtifact, ...] = ()


class Store:
    """The store in a folder, which is made when the first artifact comes.

    Args:
        path: The folder. Everybody who may write to it decides what is restored from it.
        max_bytes: Most bytes of all blobs together, as a number or as text such as ``500GiB``: who captures removes the
            oldest artifacts, or is refused. Default: COLDSNAP_STORE_MAX_BYTES; without it, any number.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int | str | None = None) -> None:
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(text, str) or not text or "\0" in text:
            raise errors.RequestInvalidError(
                f"use a store: {path!r} is no path", remedy="give its folder as str or PathLike[str]"
            )
        self.path = Path(text)
        self._max_bytes = None if max_bytes is None else settings.parse_size(max_bytes, "max_bytes")

    @property
    def cap(self) -> settings.Setting:
        """Most bytes of all blobs together, None for any number, and who chose it.

        Raises:
            RequestInvalidError: COLDSNAP_STORE_MAX_BYTES is no size.
        """
        return settings.resolve_one(settings.STORE_MAX_BYTES, self._max_bytes, os.environ)

    def folder_of(self, identity: Any) -> Path:
        """Where the artifacts of an identity lie, whether there are any or not.

        Raises:
            RequestInvalidError: The identity is nothing that JSON can hold.
        """
        return self.folder_of_text(canonical(identity, "identity"))

    def folder_of_text(self, identity: str) -> Path:
        """The same of an identity that is canonical JSON already."""
        return self.path / digest_of(identity)

    def current(self, identity: Any) -> Path | None:
        """The folder of the identity's current artifact; None where there is none.

        Raises:
            RequestInvalidError: The identity is nothing that JSON can hold.
            FormatInvalidError: The file ``current`` is damaged.
            IoError: It can't be read.
        """
        folder = self.folder_of(identity)
        root = stored.current_root(folder)
        while root is not None and not (folder / root).is_dir():
            before, root = root, stored.current_root(folder)
            if root == before and not (folder / root).is_dir():  # else it was captured again just now
                return None
            # Another one became current, and this one was collected, in between.
        return None if root is None else folder / root

    def open(self, identity: Any, *, shard: str | None = None) -> Artifact:
        """Open the identity's current artifact; it is not collected as long as it is open.

        Raises:
            RequestInvalidError: There is none, or the shard is none of its.
            FormatInvalidError, DataLossError, IoError: As of `coldsnap.open`.
        """
        failed = None
        while True:
            folder = self.current(identity)
            if folder is None:
                raise errors.RequestInvalidError(
                    f"open the current artifact of {self.folder_of(identity)}: there is none",
                    stage="open",
                    remedy="capture it, with the same identity",
                )
            try:
                return open_artifact(folder, shard=shard)
            except errors.Error:
                # Else the same happened, a moment later. Twice: it may have been collected and captured again.
                if failed == folder == self.current(identity):
                    raise
                failed = folder

    def ls(self) -> list[StoredArtifact]:
        """What the store has, by identity digest and root; what is being captured or removed is not among it.

        Raises:
            IoError: A folder can't be read.
        """
        found = []
        for folder in stored.digest_folders(self.path):
            current = None
            with contextlib.suppress(errors.FormatInvalidError):  # then none of them is the current one
                current = stored.current_root(folder)
            found += [stored.described(path, current) for path in stored.digest_folders(folder)]
        # What has no description may have been collected since its folder was listed.
        return [entry for entry in found if not entry.problem or entry.path.exists()]

    def gc(
        self, *, max_bytes: int | None = None, max_age_s: float | None = None, keep_current: bool = True
    ) -> list[StoredArtifact]:
        """Remove artifacts that are too old, and then the oldest until the rest is small enough.

        What is open in any process of this machine stays. On a file system without locks nothing is removed.

        Args:
            max_bytes: Most bytes of all blobs together; None: any number.
            max_age_s: Most seconds since an artifact was published; None: any number.
            keep_current: Whether current artifacts stay whatever their age and size.
        Returns:
            What was removed.
        Raises:
            RequestInvalidError: A limit is negative.
            IoError: A folder can't be moved or removed.
        """
        for name, limit in (("max_bytes", max_bytes), ("max_age_s", max_age_s)):
            if limit is not None and limit < 0:
                raise errors.RequestInvalidError(f"collect in store {self.path}: {name} is {limit}")
        if not self.path.is_dir():
            return []
        with self._locked():
            every = self.ls()
            total, removed = sum(entry.nbytes for entry in every), []
            for entry in _oldest_first(every):
                too_old = max_age_s is not None and entry.age_s > max_age_s
                too_large = max_bytes is not None and total > max_bytes
                if (
                    (too_old or too_large)
                    and not (entry.current and keep_current)
                    and self._trashed(entry.path, entry.current)
                ):
                    removed.append(entry)
                    total -= entry.nbytes
        self._empty_trash()
        return removed

    def remove(self, artifact_root: str) -> StoredArtifact:
        """Remove one artifact, also a current or a damaged one, if no process of this machine has it open.

        Raises:
            RequestInvalidError: The store has none of this root.
            PolicyRefusedError: It is open, or on a file system without locks. Nothing was removed.
            IoError: It can't be moved or removed.
        """
        with self._locked():
            entry = next((each for each in self.ls() if each.artifact_root == artifact_root), None)
            doing = f"remove artifact {artifact_root} of store {self.path}"
            if entry is None:
                raise errors.RequestInvalidError(f"{doing}: there is none", remedy="see coldsnap store ls")
            if not self._trashed(entry.path, entry.current):
                why = "it is open, or the file system has no locks, so nobody can know"
                raise errors.PolicyRefusedError(f"{doing}: {why}", remedy="end what restores from it")
        self._empty_trash()
        return entry

    def make_room(self, nbytes: int, identity: str, replace: bool) -> tuple[StoredArtifact, ...]:
        """Remove the oldest artifacts, current ones last, until a new blob is within the cap; nothing without a cap.

        What is open in any process of this machine stays, and so does the current artifact of the identity. Where that
        is not to be replaced, nothing will be added and nothing is done.

        Args:
            nbytes: Bytes of the new blobs.
            identity: Of what is to be captured, canonical JSON.
            replace: Whether it may become current in the place of another artifact.
        Returns:
            What was removed.
        Raises:
            PolicyRefusedError: That doesn't suffice; the message has the bytes needed and available. Nothing was removed.
            IoError: A folder can't be moved or removed.
        """
        if self.cap.value is None:
            return ()
        folder = self.folder_of_text(identity)
        if not replace and stored.current_root(folder) is not None:
            return ()
        make_folders(self.path)
        with self._locked():
            removed = self._room_made(nbytes, folder.name)
        self._empty_trash()
        return removed

    def create_incoming(self, name: str, *, keep_shards: bool = False) -> Any:
        """Make the folder in which a capture is built, and remove what killed captures left.

        Args:
            name: Of the capture; one that is under way has it for itself.
            keep_shards: Leave the shards that a killed capture of this name left, for a writer that can take them up.
        Returns:
            ``_native.Incoming``: ``path``, and ``close``, which removes what was not published.
        Raises:
            PolicyRefusedError: A capture of that name is under way.
            IoError, NoSpaceError: A folder can't be made or removed.
        """
        folder = self.path / INCOMING
        make_folders(folder)
        incoming = load_native().create_incoming(str(folder), name, keep_shards)
        try:
            load_native().remove_stale_incoming(str(folder))
        except BaseException:
            incoming.close()
            raise
        return incoming

    def publish(self, incoming: Any, shards: Sequence[str], identity: str, capture: str, replace: bool) -> Published:
        """Move what was captured to its place and make it the current one.

        Args:
            incoming: From ``_native.create_incoming``, with the shards in it.
            shards: Their records.
            identity: A canonical JSON object.
            capture: The same, for artifact.json.
            replace: Whether another artifact may be the identity's current one until now.
        Raises:
            ExistsError: Another artifact is the current one, and ``replace`` is False.
            DataLossError, FormatInvalidError: The store has this artifact already, and it is damaged.
            IoError, NoSpaceError: A system call failed. Nothing appeared.
        """
        root = artifact_root(identity, shards)
        folder = self.folder_of_text(identity)
        nbytes = sum(json.loads(record)["blob_bytes"] for record in shards)
        while True:
            removed: tuple[StoredArtifact, ...] = ()
            with contextlib.ExitStack() as stack:
                present = (folder / root).exists()
                try:
                    if present:
                        stack.enter_context(_verified(folder / root))
                except errors.Error:
                    if (folder / root).exists():
                        raise
                    continue  # it was collected before it was open
                stack.enter_context(self._locked())
                if (folder / root).exists() != present:
                    continue  # it appeared, or was removed, in between
                self._refuse_another(folder, root, replace)
                if not present:
                    removed = self._room_made(nbytes, folder.name)
                    self._move(incoming, shards, identity, capture, folder / root)
                try:
                    stored.point(folder, root)
                except BaseException:
                    if not present:
                        self._trashed(folder / root, False)
                    raise
            if removed:
                self._empty_trash()
            return Published(root, folder / root, present, removed)

    def _refuse_another(self, folder: Path, root: str, replace: bool) -> None:
        now = stored.current_root(folder)
        if now in (None, root) or replace or not (folder / now).exists():
            return
        raise errors.ExistsError(
            f"publish artifact {root} in {folder}: the current one of this identity is {now}, with other content",
            stage="publish",
            remedy="name what differs in the identity, or pass replace=True",
        )

    def _room_made(self, nbytes: int, identity_digest: str) -> tuple[StoredArtifact, ...]:
        """Make room for a blob within the cap, as `make_room` says; the caller has the store's lock."""
        cap = self.cap.value
        if cap is None:
            return ()
        every, going = self.ls(), []
        excess = sum(entry.nbytes for entry in every) + nbytes - cap
        for entry in _oldest_first(every):
            needed = excess > 0 and not (entry.current and entry.identity_digest == identity_digest)
            if needed and _is_unused(entry.path):
                going.append(entry)
                excess -= entry.nbytes
        if excess > 0:
            raise self._no_room(nbytes, excess)
        removed = []
        for entry in going:
            if not self._trashed(entry.path, entry.current):  # opened a moment ago
                raise self._no_room(nbytes, entry.nbytes)
            removed.append(entry)
        return tuple(removed)

    def _no_room(self, nbytes: int, excess: int) -> errors.Error:
        return errors.PolicyRefusedError(
            f"capture a blob of {nbytes} bytes into store {self.path}: its cap is {self.cap.value} bytes, and artifacts "
            f"that are in use, or current for this identity, leave {max(0, nbytes - excess)} of them",
            stage="publish",
            remedy=f"raise {settings.STORE_MAX_BYTES.variable}, or close what has artifacts open",
        )

    def _move(self, incoming: Any, shards: Sequence[str], identity: str, capture: str, destination: Path) -> None:
        if not destination.parent.exists():
            make_folder(destination.parent, f"of the identity, {destination.parent.name}")
            sync_folder(self.path, "the store's folder")
        load_native().publish_artifact(incoming, list(shards), identity, capture, str(destination))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from publishing and collecting for a moment."""
        with saying(
            f"lock store {self.path}", "keep the store on a file system with locks, and let this user write to it"
        ):
            fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # closing gives it back
            except BaseException:
                os.close(fd)
                raise
        try:
            yield
        finally:
            os.close(fd)

    def _trashed(self, path: Path, current: bool) -> bool:
        """Move an artifact that nobody has open out of sight; the caller has the store's lock."""
        trash = self.path / TRASH
        make_folders(trash)
        with _exclusive(path) as alone:
            if not alone:
                return False
            with saying(f"move artifact {path.name} to {TRASH}", stage="publish"):
                if current:
                    os.unlink(path.parent / stored.CURRENT)
                os.rename(path, trash / f"{path.name}.{os.urandom(8).hex()}")
            sync_folder(path.parent, f"the folder of {path.name}")
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # if it was the last one
        return True

    def _empty_trash(self) -> None:
        trash = self.path / TRASH
        if not trash.is_dir():
            return
        for path in list(trash.iterdir()):
            remove_tree(path)


def collected(removed: Sequence[StoredArtifact]) -> list[dict[str, str]]:
    """The reason for a receipt, for each artifact that was removed to keep a store within its cap."""
    detail = "{} went, {} bytes, so that the store keeps to its cap"
    return [{"code": "store_collected", "detail": detail.format(each.artifact_root, each.nbytes)} for each in removed]


def artifact_root(identity: str, shards: Sequence[str]) -> str:
    """The root of an artifact that is not there yet (docs/format.md, "Roots").

    Args:
        identity: Canonical JSON.
        shards: Records of its shards, in any order.
    """
    rows = sorted((record["name"], record["shard_root"]) for record in map(json.loads, shards))
    value = {"format": stored.FORMAT, "identity": digest_of(identity), "shards": rows}
    return digest_of(json.dumps(value, sort_keys=True, separators=(",", ":")))


@contextlib.contextmanager
def _verified(path: Path) -> Iterator[None]:
    """An artifact that is there already, compared byte for byte with its digests and kept for the block."""
    with contextlib.ExitStack() as opened:
        try:
            opened.enter_context(open_artifact(path, shard=shard_names(path)[0]))
            verify(path)
        except (errors.DataLossError, errors.FormatInvalidError) as failure:
            first = f"before another capture: coldsnap store rm {path.name}"
            failure.remedy = f"{failure.remedy}; {first}".removeprefix("; ")
            raise
        yield


def _oldest_first(entries: Sequence[StoredArtifact]) -> list[StoredArtifact]:
    """In the order in which they go: current ones behind all others."""
    return sorted(entries, key=lambda entry: (entry.current, -entry.age_s))


def _is_unused(path: Path) -> bool:
    with _exclusive(path) as alone:
        return alone


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[bool]:
    """Whether nobody has the artifact open, and nobody can open it within the block."""
    with contextlib.ExitStack() as stack:
        alone = True
        for shard in shard_folders(path):
            try:
                fd = os.open(shard / _BLOB, _READ)
                stack.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                continue  # what lost its blob can't be opened any more
            except OSError:
                alone = False  # it is open, or nobody can know
        yield alone
