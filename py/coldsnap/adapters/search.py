"""Which artifact a start restores from, decided before a model is built: one, or the reason why none.

Nothing here depends on an engine but how two identities are compared, which the caller brings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap import errors, quarantine, state
from coldsnap.adapters.configuration import Configuration
from coldsnap.artifact import Artifact, open_artifact
from coldsnap.new_file import read_small
from coldsnap.store import Store
from coldsnap.verify import verify

STRATEGY = "coldsnap.strategy"
_MAX_BYTES = 64 << 20
_MOST_SHOWN = 3
_LONGEST = 300  # of a former failure, in a line of the log


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an artifact has to be.

    Attributes:
        identity: Of the model that is about to be loaded.
        shard: Of this rank.
        strategies: That this engine can restore by.
        different: Lines for people, one for each field in which a captured identity and this one differ.
        comparable: What of an identity is compared: all, or all but its checkpoint.
    """

    identity: Mapping[str, Any]
    shard: str
    strategies: Collection[str]
    different: Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]
    comparable: Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """An artifact to restore from, open; or why there is none.

    Attributes:
        artifact: The artifact.
        code: As in ``receipt.reasons`` or ``receipt.error["code"]``; empty where there is one.
        why: The same for people.
        quarantined: Its record, where there is one that is under quarantine.
    """

    artifact: Artifact | None = None
    code: str = ""
    why: str = ""
    quarantined: quarantine.Record | None = None


def find(configuration: Configuration, wanted: Wanted, environ: Mapping[str, str]) -> Found:
    """Find the artifact of a start. What it opens is not collected as long as it is open.

    Raises:
        Nothing that a start could not do without: whatever is wrong is the reason why there is none.
    """
    try:
        path = _path(configuration, wanted, environ)
        return path if isinstance(path, Found) else _checked(path, configuration, wanted, environ)
    except errors.Error as cause:
        return Found(code=cause.code, why=str(cause))


def _path(configuration: Configuration, wanted: Wanted, environ: Mapping[str, str]) -> Path | Found:
    if configuration.artifact.value is not None:
        return Path(configuration.artifact.value)
    store = Store(configuration.place(environ).value)
    if configuration.identity.value == "manifest":
        return _by_engine(store, wanted)
    current = store.current(wanted.identity)
    return current if current is not None else Found(code="no_artifact", why=_nearest(store, wanted))


def _checked(path: Path, configuration: Configuration, wanted: Wanted, environ: Mapping[str, str]) -> Found:
    try:
        artifact = open_artifact(path, shard=wanted.shard)
    except errors.Error as failure:
        # A description that lost bytes is a failure like a digest that differs: it is remembered.
        quarantine.note_unopened(path, failure, "restore")
        return Found(code=failure.code, why=str(failure))
    try:
        found = _usable(artifact, configuration, wanted, environ)
    except BaseException:
        artifact.close()
        raise
    if found.artifact is None:
        artifact.close()
    return found


def _usable(artifact: Artifact, configuration: Configuration, wanted: Wanted, environ: Mapping[str, str]) -> Found:
    root = artifact.artifact_root
    unlike = _unlike(artifact.identity, wanted)
    if unlike:
        return Found(code="identity_differs", why=f"artifact {root[:12]} is of another start: {_some(unlike)}")
    record = quarantine.find(root, environ) if state.is_known(environ) else None
    if record is not None:
        why = (
            f"artifact {root[:12]} is under quarantine ({record.code}: {_short(record.message)}); "
            f"capture it again, or take the record away: coldsnap store unquarantine {root}"
        )
        return Found(code="quarantined", why=why, quarantined=record)
    strategy = artifact.scalars.get(STRATEGY)
    if strategy not in wanted.strategies:
        why = f"artifact {root[:12]} was captured for the strategy {strategy!r}, which this engine has not"
        return Found(code="strategy_unknown", why=why)
    if configuration.mode.value == "auto" and not _can_remember(environ):
        # A failure would come again at each start, so it has to come before anything is built.
        verify(artifact)
    return Found(artifact)


def _can_remember(environ: Mapping[str, str]) -> bool:
    """Whether a quarantine could be written down here."""
    try:
        with state.opened(state.QUARANTINE, environ, make=True) as folder:
            return folder is not None and os.access(f"/proc/self/fd/{folder}", os.W_OK)
    except errors.Error:
        return False


def _by_engine(store: Store, wanted: Wanted) -> Path | Found:
    """The store's only current artifact of this engine and model, whatever its checkpoint was."""
    fitting = [path for path, identity in _current(store) if not _unlike(identity, wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        return Found(code="no_artifact", why=_nearest(store, wanted))
    return Found(
        code="ambiguous", why=f"{len(fitting)} artifacts of {store.path} are of this engine and model; name one of them"
    )


def _nearest(store: Store, wanted: Wanted) -> str:
    """Why the store has none: the artifact that differs least, if one is of the same checkpoint."""
    mine = wanted.identity.get("checkpoint")
    others = [
        _unlike(identity, wanted)
        for _, identity in _current(store)
        if mine is not None and identity.get("checkpoint") == mine
    ]
    if not others:
        return f"there is no artifact of this model in {store.path} yet"
    return f"the artifact in {store.path} is of another start: {_some(min(others, key=len))}"


def _current(store: Store) -> list[tuple[Path, dict[str, Any]]]:
    """Current artifacts with their identities; of each only its description is read."""
    found = []
    for entry in store.ls() if store.path.is_dir() else []:
        if not entry.current or entry.problem:
            continue
        try:
            described = json.loads(read_small(entry.path / "artifact.json", _MAX_BYTES) or b"null")
            found.append((entry.path, dict(described["identity"])))
        except (errors.Error, ValueError, KeyError, TypeError):
            continue  # removed meanwhile, or damaged: opening it would say so
    return found


def _unlike(captured: Mapping[str, Any], wanted: Wanted) -> list[str]:
    return wanted.different(wanted.comparable(captured), wanted.comparable(wanted.identity))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _some(lines: list[str]) -> str:
    more = f" (and {len(lines) - _MOST_SHOWN} more)" if len(lines) > _MOST_SHOWN else ""
    return "; ".join(lines[:_MOST_SHOWN]) + more
