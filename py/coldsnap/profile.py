"""The profile: what a calibration found best on this machine, for `auto` and for defaults.

A profile only makes restores faster. So one that is damaged, or that others may write to, stops nothing: it is ignored,
with one warning that names the problem.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap import errors, mounts, records, settings, state
from coldsnap.artifact import load_native

FORMAT = 1
ROUTES = ("direct", "buffered")
# Entries of kernels and cards that are gone would pile up; the oldest go first.
MAX_ENTRIES = 64
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Key:
    """What numbers depend on: the drive, the card, the kernel.

    Attributes:
        mount: From `mount_key`.
        gpu: The card's name; None for host memory.
        kernel: Its release, as ``uname -r`` prints it.
    """

    mount: str
    gpu: str | None
    kernel: str


@dataclass(frozen=True, slots=True)
class Best:
    """A route's fastest setting, and the payload bytes per second that it gave."""

    read_threads: int
    chunk_bytes: int
    queue_depth: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine itself can do, in bytes per second; None where it wasn't measured."""

    h2d: float | None
    direct_read: float | None
    page_cache: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of one calibration; a route that does not work there is None."""

    key: Key
    direct: Best | None
    buffered: Best | None
    ceilings: Ceilings
    measured_at: str
    commit: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """All entries of a profile, the newest last; no two have the same key."""

    entries: tuple[Entry, ...]


_BEST = records.record(
    read_threads=records.whole(1, settings.MAX_READ_THREADS),
    chunk_bytes=records.whole(settings.LEAF_BYTES, settings.GIB, settings.LEAF_BYTES),
    queue_depth=records.whole(1, settings.MAX_QUEUE_DEPTH),
    bytes_per_second=records.rate,
)
_RATE = records.optional(records.rate)
_ENTRY = records.record(
    key=records.record(mount=records.text(), gpu=records.optional(records.text()), kernel=records.text()),
    direct=records.optional(_BEST),
    buffered=records.optional(_BEST),
    ceilings=records.record(h2d=_RATE, direct_read=_RATE, page_cache=_RATE),
    measured_at=records.text(),
    commit=records.optional(records.text()),
)
_SCHEMA = records.record(format=records.whole(FORMAT, FORMAT), entries=records.array(_ENTRY))


def read(environ: Mapping[str, str]) -> Profile | None:
    """Read COLDSNAP_PROFILE, else ``profile.json`` of the state folder; None where there is none that can be used.

    Warns:
        UserWarning: There is one, and why it is ignored.
    """
    if not environ.get("COLDSNAP_PROFILE") and not state.is_known(environ):
        return None
    try:
        path = state.profile_path(environ)
        data = state.read_file(None, path, _MAX_BYTES)
        return None if data is None else _parse(data, path)
    except errors.Error as cause:
        warnings.warn(f"the profile is ignored: {cause}", stacklevel=2)
        return None


def find(profile: Profile | None, path: str | os.PathLike[str] | int, device: str) -> Entry | None:
    """The entry for files on the mount of ``path`` (or of an open descriptor) restored to ``device``, if there is one.

    Args:
        profile: From `read`.
        path: A file or folder, such as the artifact's, or its descriptor.
        device: ``host`` or ``cuda:N``.
    """
    if profile is None:
        return None
    try:
        key = key_of(path, device)
    except errors.Error:
        return None  # whatever is wrong with it, the restore itself says it better
    return next((entry for entry in profile.entries if entry.key == key), None)


def values(entry: Entry | None, route: str) -> dict[str, int]:
    """The settings that an entry has for a route, by name; empty where it has none."""
    best: Best | None = getattr(entry, route) if entry is not None and route in ROUTES else None
    if best is None:
        return {}
    return {name: getattr(best, name) for name in ("read_threads", "chunk_bytes", "queue_depth")}


def update(entry: Entry, environ: Mapping[str, str]) -> None:
    """Put an entry into the profile, in place of the one with its key. A damaged profile is replaced, with a warning.

    Raises:
        RequestInvalidError: The entry breaks the schema; the text says where.
        PolicyRefusedError: The profile's folder can't be trusted.
        IoError, NoSpaceError: It can't be written.
    """
    try:
        _ENTRY(dataclasses.asdict(entry), "entry")
    except ValueError as cause:
        raise errors.RequestInvalidError(f"write the profile: {cause}") from cause
    with state.opened_for_profile(environ) as folder, state.locked(folder):
        standing = read(environ)
        others = [each for each in (standing.entries if standing else ()) if each.key != entry.key]
        profile = Profile((*others, entry)[-MAX_ENTRIES:])
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(profile)}, indent=1, allow_nan=False)
        state.write_file(folder, state.profile_path(environ).name, text.encode() + b"\n")


def key_of(path: str | os.PathLike[str] | int, device: str) -> Key:
    """The key of files on the mount of ``path``, restored to ``device``.

    Raises:
        IoError: The path can't be opened.
        RouteUnavailableError: There is no such device.
    """
    gpu = None if device == "host" else load_native().device_name(device)
    return Key(mount_key(path), gpu, os.uname().release)


def mount_key(path: str | os.PathLike[str] | int) -> str:
    """The file system's type with its UUID, else with the SHA-256 of where it is mounted: no path of this machine.

    Raises:
        IoError: The path can't be opened.
    """
    try:
        fd = os.dup(path) if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            system = mounts.of_descriptor(fd)
        finally:
            os.close(fd)
    except OSError as cause:
        raise errors.from_errno(cause, f"find the file system of {path!r}") from cause
    if system.uuid is not None:
        return f"{system.type}:uuid:{system.uuid}"
    return f"{system.type}:mounted-at:{hashlib.sha256(os.fsencode(system.point or '')).hexdigest()}"


def _parse(data: bytes, path: Path) -> Profile:
    try:
        entries = [_entry(each) for each in records.load(data, _SCHEMA)["entries"]]
        if len({entry.key for entry in entries}) != len(entries):
            raise ValueError("two entries have the same key")
    except ValueError as cause:
        raise errors.FormatInvalidError(
            f"read {path}: it is damaged: {cause}", remedy="measure again: coldsnap calibrate"
        ) from cause
    return Profile(tuple(entries))


def _entry(found: dict[str, Any]) -> Entry:
    best = {route: found[route] and Best(**found[route]) for route in ROUTES}
    parts = {"key": Key(**found["key"]), "ceilings": Ceilings(**found["ceilings"]), **best}
    return Entry(**{**found, **parts})
