"""Bringing weights into the page cache while the engine is still importing itself, long before it asks for them.

    begin(environ)     in the first process of a launch: reads in the background what will probably be asked for
    end(environ)       in a worker that begins to fill its tensors, which reads what is not there yet faster
    note, forget       in a worker: what the next launch by the same command line will ask for

It is the artifact that COLDSNAP_ARTIFACT names, else what the same command line restored or captured last. A wrong guess
costs reading, and nothing else: which artifact is restored does not depend on it. Nothing that goes wrong here is anybody's
failure.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import socket
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping

from coldsnap import errors, records, settings, state
from coldsnap.adapters.configuration import BACKEND
from coldsnap.artifact import Artifact, open_artifact, shard_names
from coldsnap.keep_cached import KeepCached, keep, why_no_room

FORMAT = 1
MAX_HINTS = 256  # those of command lines that are not used any more would pile up; the oldest go first
_PLACE = state.Place("launches")
_MARK = "_COLDSNAP_LAUNCH"  # what a launch's first process leaves in the environment of the others
_SUFFIX = ".json"
_MAX_BYTES = 16 << 10
_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT), path=records.text(r"/[^\x00]{0,4095}"), shard=records.text()
)
_PAST_THE_CACHE = ("direct", "gds")  # these read past the page cache, whatever is in it
_NAMELESS = ("", "-", "-c", "-m")  # command lines of these say nothing
_HARMLESS = (errors.Error, OSError, ValueError)

_log = logging.getLogger("coldsnap")


def begin(environ: MutableMapping[str, str] = os.environ) -> list[KeepCached]:
    """In a process that will be an engine or starts one: begin to read, if it is the first of its launch.

    Args:
        environ: Environment variables; gets one more, by which this launch's other processes know of it.
    Returns:
        The readers that run, one for each blob.
    """
    try:
        launch = _launch()
        if environ.get(_MARK, "").partition(":")[0] == launch:
            return []
        environ[_MARK] = f"{launch}:"
        return _begun(launch, environ)
    except Exception as cause:  # of whatever kind: this runs in every process of the engine, whatever it will load
        _log.debug("nothing is read ahead: %s: %s", type(cause).__name__, cause)
        return []


def is_reading(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a process of this launch reads ahead."""
    return _Ear.at(environ.get(_MARK, "").partition(":")[2])


def end(environ: MutableMapping[str, str] = os.environ) -> None:
    """Have this launch's readers end, each after the piece that it is reading; what this process loads next is not read."""
    launch, _, name = environ.get(_MARK, "").partition(":")
    if name:
        environ[_MARK] = f"{launch}:"
        _Ear.tell(name)


def reader(
    artifact: Artifact, environ: Mapping[str, str] = os.environ, wanted: Callable[[], bool] = lambda: True
) -> KeepCached | None:
    """Begin to read an artifact's blob for a start that waits for it.

    Args:
        artifact: The opened artifact; it may be closed while the reader runs.
        environ: Environment variables.
        wanted: Asked after each piece whether there is to be another one.
    Returns:
        The reader; None where the restore will read past the page cache whatever is in it, or it can't be.
    """
    with contextlib.suppress(errors.Error):  # the restore itself will say what is wrong, or do without
        backend = settings.resolve({"backend": BACKEND}, environ)["backend"]
        if backend.value not in _PAST_THE_CACHE:
            return keep(artifact, environ, soon=True, wanted=wanted)
    return None


def note(path: str, shard: str, environ: Mapping[str, str] = os.environ) -> None:
    """Have the next launch by this command line read a shard ahead.

    Args:
        path: The artifact's folder.
        shard: Of this rank.
        environ: Environment variables.
    """
    data = json.dumps({"format": FORMAT, "path": path, "shard": shard}).encode() + b"\n"
    with contextlib.suppress(*_HARMLESS), state.opened(_PLACE, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        name = f"{_launch()}.{shard}{_SUFFIX}"
        if state.read_file(folder, name, _MAX_BYTES) != data:
            state.write_file(folder, name, data)
            _drop_oldest(folder)


def forget(environ: Mapping[str, str] = os.environ) -> None:
    """This command line loads its weights in another way: have nothing read ahead for it any more."""
    with contextlib.suppress(*_HARMLESS), state.opened(_PLACE, environ) as folder:
        for name in [] if folder is None else _names(folder, _launch()):
            state.remove_file(folder, name)


class _Ear:
    """By which the processes of a launch are heard: a socket without a file, since a container may forbid those.

    It is there as long as the readers that ask it.
    """

    def __init__(self) -> None:
        self.name = f"coldsnap-{secrets.token_hex(16)}"
        self._told = False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as made:
            made.bind("\0" + self.name)
            self._fd = made.detach()
        weakref.finalize(self, os.close, self._fd)

    def told(self) -> bool:
        """Whether somebody has told it anything yet."""
        with contextlib.suppress(BlockingIOError):
            self._told = bool(os.read(self._fd, 1)) or self._told
        return self._told

    @staticmethod
    def at(name: str) -> bool:
        """Whether there is one of this name."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            return bool(name) and mouth.connect_ex("\0" + name) == 0
        return False

    @staticmethod
    def tell(name: str) -> None:
        """Tell the one of this name, if there is one."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            mouth.sendto(b".", "\0" + name)


def _launch() -> str:
    """Names the command line, the same in all processes of a launch.

    Raises:
        ValueError: There is none that says anything.
    """
    if not sys.argv or sys.argv[0] in _NAMELESS:
        raise ValueError("this launch has no command line to be known by")
    return hashlib.sha256(json.dumps([os.getcwd(), *sys.argv]).encode()).hexdigest()[:32]


def _begun(launch: str, environ: MutableMapping[str, str]) -> list[KeepCached]:
    if environ.get(settings.MODE.variable) == "off":
        return []
    with contextlib.ExitStack() as stack:
        artifacts = [stack.enter_context(artifact) for artifact in _expected(launch, environ)]
        why = _why_not_all(artifacts, environ)
        if why or not artifacts:
            _log.debug("nothing is read ahead: %s", why or "nobody knows what will be restored")
            return []
        ear = _Ear()
        environ[_MARK] = f"{launch}:{ear.name}"
        found = [reader(artifact, environ, lambda: not ear.told()) for artifact in artifacts]
    return [each for each in found if each is not None]


def _why_not_all(artifacts: list[Artifact], environ: Mapping[str, str]) -> str | None:
    """Why there is no room for all of them; of one alone, its reader says it."""
    policy = settings.resolve_one(settings.KEEP_CACHED, None, environ).value
    if policy != "auto" or len(artifacts) < 2:
        return None
    return why_no_room(sum(artifact.native.blob_bytes for artifact in artifacts))


def _expected(launch: str, environ: Mapping[str, str]) -> Iterator[Artifact]:
    """What this launch will probably restore, opened."""
    named = environ.get(settings.ARTIFACT.variable)
    if named:
        yield from (open_artifact(named, shard=shard) for shard in shard_names(named))
        return
    if not state.is_known(environ):
        return
    with state.opened(_PLACE, environ) as folder:
        for name in [] if folder is None else _names(folder, launch):
            data = state.read_file(folder, name, _MAX_BYTES)
            if data is not None:
                hint = records.load(data, _SCHEMA)
                yield open_artifact(hint["path"], shard=hint["shard"])


def _names(folder: int, launch: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(launch) and name.endswith(_SUFFIX))


def _drop_oldest(folder: int) -> None:
    names = _names(folder, "")
    if len(names) > MAX_HINTS:
        for name in sorted(names, key=lambda name: os.stat(name, dir_fd=folder).st_mtime_ns)[:-MAX_HINTS]:
            state.remove_file(folder, name)
