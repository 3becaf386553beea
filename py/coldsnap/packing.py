"""An artifact as one file: a plain tar, ``artifact.json`` last, and back from there into a store.

    <artifact root>/shard-<pp>-<tp>-<ep>/{manifest.json, leaves.bin, weights.safetensors}
    <artifact root>/artifact.json

A tar comes from elsewhere, so nothing of it is believed: names and kinds of its members are these and no others, what it
holds is written beside the store's artifacts, verified there in full, and only then moved to its place. An artifact's
blob is held open while it is packed, so `coldsnap.Store.gc` leaves it alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from coldsnap import errors, settings
from coldsnap.artifact import load_native, open_artifact, shard_names
from coldsnap.blob_check import BlobCheck, check_all
from coldsnap.new_file import NewFile, make_folder, saying, sync_folder
from coldsnap.store import Published, Store
from coldsnap.ticker import Ticker
from coldsnap.whole_file import appearing

_LAST = "artifact.json"
_SHARD_FILES = ("manifest.json", "leaves.bin", "weights.safetensors")
_SHARD = r"shard-\d{2,6}-\d{2,6}-\d{2,6}"
_MEMBER = re.compile(
    rf"(?P<root>[0-9a-f]{{64}})/(?:artifact\.json|{_SHARD}/(?:{'|'.join(map(re.escape, _SHARD_FILES))}))", re.ASCII
)
_PIECE_BYTES = 4 << 20
_MODE = 0o444

Progress = Callable[[int, int], object]


def pack(artifact: Path, destination: Path, progress: Progress | None = None) -> str:
    """Write an artifact as a tar file, durably; the same artifact gives the same bytes.

    Args:
        artifact: Its folder.
        destination: The file, which must not be there yet.
        progress: Called with (bytes done, bytes in total).
    Returns:
        The artifact's root.
    Raises:
        ExistsError: Something is at ``destination``.
        RequestInvalidError, FormatInvalidError, DataLossError: As of `coldsnap.open`.
        IoError, NoSpaceError: A system call failed. Nothing is at ``destination``.
    """
    if os.path.lexists(destination):
        raise errors.ExistsError(f"pack to {destination}: it is there already", remedy="name a new file")
    with contextlib.ExitStack() as stack:
        names = sorted(shard_names(artifact))
        shards = [stack.enter_context(open_artifact(artifact, shard=name)) for name in names]
        root = shards[0].artifact_root
        files = [f"{name}/{file}" for name in names for file in _SHARD_FILES]
        files.append(_LAST)
        with appearing(destination) as stream, saying(f"pack artifact {root} to {destination}"):
            _write_tar(artifact, root, files, stream, progress)
    return root


def unpack(
    source: Path,
    store: Store,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> Published:
    """Bring a packed artifact into a store: written, verified in full, and then moved to its place.

    Args:
        source: The tar file.
        store: Where to.
        replace: Whether another artifact may be the identity's current one until now.
        progress: Called with (bytes written, bytes of the file) and then with (bytes verified, bytes of the blobs).
        cancel: Set it to stop.
    Raises:
        FormatInvalidError: The file is no such tar, or a member is none of an artifact's files.
        DataLossError: It ends too soon, or a digest differs.
        ExistsError: Another artifact is the current one, and ``replace`` is False.
        IoError, NoSpaceError: A system call failed. Nothing appeared in the store.
    """
    with saying(f"open {source}", stage="open"):
        stream = source.open("rb")
    with stream:
        total = os.fstat(stream.fileno()).st_size
        incoming = store.create_incoming(f"unpack-{os.urandom(8).hex()}")
        try:
            folder = Path(incoming.path)
            with _reading(source):
                root = _extract(_Bounded(stream), source, folder, Ticker(progress, cancel), total)
            found = _verified(folder, source, Ticker(progress, cancel))
            if found != root:
                raise _refused(source, f"its members are named after {root}, and they are artifact {found}")
            description = json.loads((folder / _LAST).read_bytes())
            (folder / _LAST).unlink()  # the store writes it anew, as the last file of all
            identity, capture = (_text(description[name]) for name in ("identity", "capture"))
            shards = [_text(record) for record in description["shards"]]
            return store.publish(incoming, shards, identity, capture, replace)
        finally:
            incoming.close()


def _write_tar(artifact: Path, root: str, files: list[str], stream: IO[bytes], progress: Progress | None) -> None:
    total, done = sum((artifact / name).stat().st_size for name in files), 0
    tick = Ticker(progress, None)

    def tell(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        tick(done, total)

    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.copybufsize = _PIECE_BYTES  # type: ignore[attr-defined]
        for name in files:
            with (artifact / name).open("rb") as source:
                member = tarfile.TarInfo(f"{root}/{name}")
                member.size, member.mode = os.fstat(source.fileno()).st_size, _MODE
                tar.addfile(member, _Told(source, tell))


class _Told:
    """A file for tarfile, which calls ``tell`` with the bytes of each read."""

    def __init__(self, stream: IO[bytes], tell: Callable[[int], object]) -> None:
        self._stream, self._tell = stream, tell

    def read(self, nbytes: int = -1, /) -> bytes:
        data = self._stream.read(nbytes)
        self._tell(len(data))
        return data


class _Bounded:
    """A file for tarfile, which reads a member's extended header in one piece, however long it says that it is."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, nbytes: int) -> bytes:
        if nbytes > 2 * _PIECE_BYTES:
            raise tarfile.ReadError(f"a header of it has {nbytes} bytes")
        return self._stream.read(nbytes)


def _extract(stream: Any, source: Path, folder: Path, tick: Ticker, total: int) -> str:
    """Write the members' bytes below the folder; the root that all of them are named after."""
    seen: dict[str, str] = {}  # name below the root, to the root
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            name = _checked(member, source, seen)
            if member.offset_data + member.size > total:
                raise _refused(source, f"it ends in the middle of {name}", errors.DataLossError)
            data = tar.extractfile(member)
            assert data is not None  # it is a regular file
            _write_member(data, member, folder, name, tick, total)
    if _LAST not in seen:
        raise _refused(source, f"it has no {_LAST}, so it is cut short or no packed artifact", errors.DataLossError)
    for path in folder.iterdir():
        if path.is_dir():
            sync_folder(path, path.name)
    return seen[_LAST]


def _checked(member: tarfile.TarInfo, source: Path, seen: dict[str, str]) -> str:
    """The member's name below the artifact's folder, if it is one that an artifact has."""
    shown = repr(member.name[:120])
    if not member.isreg() or member.issparse() or member.size < 0:
        raise _refused(source, f"its member {shown} is no plain file")
    found = _MEMBER.fullmatch(member.name)
    if found is None:
        raise _refused(source, f"its member {shown} is no file of an artifact")
    name = member.name.partition("/")[2]
    if name in seen:
        raise _refused(source, f"its member {shown} is there twice")
    if _LAST in seen:
        raise _refused(source, f"its member {shown} comes after {_LAST}")
    if set(seen.values()) - {found["root"]}:
        raise _refused(source, f"its member {shown} is of another artifact than those before")
    seen[name] = found["root"]
    return name


def _verified(folder: Path, source: Path, ticker: Ticker) -> str:
    """Compare every digest of what was unpacked; its root.

    Not by `coldsnap.verify`, which would put the root under quarantine: a bad tar says nothing of a good copy.
    """
    names = shard_names(folder)
    extra = sorted({path.name for path in folder.iterdir() if path.is_dir()} - set(names))
    if extra:
        raise _refused(source, f"it has {extra[0]}, which its {_LAST} does not list")
    with contextlib.ExitStack() as stack:
        shards = [stack.enter_context(open_artifact(folder, shard=name)) for name in names]
        checks = [stack.enter_context(contextlib.closing(BlobCheck(shard))) for shard in shards]
        check_all(checks, settings.default_read_threads(load_native().limits()), ticker)
        return shards[0].artifact_root


def _write_member(data: IO[bytes], member: tarfile.TarInfo, folder: Path, name: str, tick: Ticker, total: int) -> None:
    path = folder / name
    if not path.parent.exists():
        make_folder(path.parent, path.parent.name)
    with NewFile(path.parent, path.name) as file:
        file.reserve(member.size)
        for offset in range(0, member.size, _PIECE_BYTES):
            if tick(member.offset_data + offset, total):
                raise errors.Cancelled(f"unpack {name}: cancelled after {offset} of {member.size} bytes")
            file.write(data.read(min(_PIECE_BYTES, member.size - offset)), offset)
        file.finish()


@contextlib.contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, ValueError, OverflowError) as cause:
        if isinstance(cause, errors.Error):
            raise
        raise _refused(source, str(cause)) from cause


def _refused(source: Path, why: str, kind: type[errors.Error] = errors.FormatInvalidError) -> errors.Error:
    return kind(
        f"unpack {source}: {why}", stage="open", remedy="pack it again: coldsnap store pack; nothing was unpacked"
    )


def _text(value: Any) -> str:
    text: str = load_native().canonical_object(json.dumps(value, ensure_ascii=False))
    return text
