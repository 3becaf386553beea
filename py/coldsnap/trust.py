"""Trust markers: the record that this very file passed a full verification on this machine (docs/trust.md).

A marker is what allows a restore to compare no digests. So it holds whatever a process without rights can see of the
file, all of it is compared with the descriptor that the restore reads from, and every doubt is a refusal.

Order of an admission: `require_admissible`, `facts_of`, the whole blob is read and compared, `write_marker`. Order of a
restore without digests: `check`, the restore, `require_unchanged`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from coldsnap import errors, mounts, records, state
from coldsnap.artifact import Artifact
from coldsnap.version import VERSION

FORMAT = 1
PINS, GROUP = "COLDSNAP_TRUST_MANIFEST", "COLDSNAP_TRUST_GROUP"
_MAX_MARKER_BYTES = 64 << 10
# The kernel takes time stamps from a clock that moves in ticks, of 10 ms at most. Some file systems keep whole seconds
# alone (ext4 with inodes of 128 bytes), or every other one (FAT).
_TICK_S = 0.02
_COARSE_TICK_S = 2.0
_ACL = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class Facts:
    """What tells an open artifact's blob apart from any other file, and from itself after a change.

    Attributes:
        manifest_sha256: Of the shard's ``manifest.json``.
        shard_root: Of the shard (docs/format.md, "Roots").
        blob_bytes: Size of the open file.
        inode: Its number, mtime_ns and ctime_ns its time stamps in nanoseconds.
        fs_type: Of its file system; None where it can't be read.
        fs_uuid: As ``fs_type``.
    """

    manifest_sha256: str
    shard_root: str
    blob_bytes: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    fs_type: str | None
    fs_uuid: str | None


@dataclass(frozen=True, slots=True)
class Admission:
    """What `check` found.

    Attributes:
        admitted: Whether digests may be left out. It is False only for a pinned artifact whose file has no marker here
            yet: verify it in full, then call `write_marker`.
        facts: Of the blob before the first byte is read.
        detail: One sentence for a receipt; it names no path.
    """

    admitted: bool
    facts: Facts
    detail: str


class _Marker(NamedTuple):
    facts: Facts
    written_at: str


_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT),
    manifest_sha256=records.text(records.HEX64),
    shard_root=records.text(records.HEX64),
    blob_bytes=records.whole(0, (1 << 53) - 1),
    inode=records.decimal,
    mtime_ns=records.decimal,
    ctime_ns=records.decimal,
    fs_type=records.optional(records.text()),
    fs_uuid=records.optional(records.text()),
    # For people: both change with each mount in a pod, so a difference says nothing.
    noted=records.record(device=records.text(), boot_id=records.optional(records.text())),
    version=records.text(),
    written_at=records.text(),
)


def check(artifact: Artifact, environ: Mapping[str, str]) -> Admission:
    """Say whether a restore of this opened artifact may leave out digests.

    Raises:
        PolicyRefusedError: COLDSNAP_TRUST_MANIFEST pins other manifests: restore nothing of this artifact.
        NotAdmittedError: No pin names it, and there is no marker of this very file, or a doubt about one.
        RequestInvalidError: A variable can't be read.
    """
    pinned = require_pin(artifact, environ)
    facts = facts_of(artifact)
    try:
        _refuse_what_others_may_write(artifact, environ)
        marker = _matching_marker(artifact, facts, environ)
    except errors.NotAdmittedError:
        if not pinned:
            raise
        detail = f"{PINS} names {facts.manifest_sha256}, and no trust marker here is for this very file"
        return Admission(False, facts, f"{detail}: to be verified in full")
    return Admission(True, facts, f"{facts.manifest_sha256} passed a full verification at {marker.written_at}")


def require_pin(artifact: Artifact, environ: Mapping[str, str]) -> bool:
    """Hold an artifact to the manifests that COLDSNAP_TRUST_MANIFEST pins; False where it pins none.

    For every restore, however much it verifies.

    Raises:
        PolicyRefusedError: It pins others.
        RequestInvalidError: It is no list of digests.
    """
    if not environ.get(PINS):
        return False
    pins = [pin.strip() for pin in environ[PINS].split(",")]
    for pin in pins:
        if not records.HEX64.fullmatch(pin):
            raise errors.RequestInvalidError(
                f"read {PINS}: {pin[:80]!r} is no SHA-256", remedy="give 64 lower-case hex digits, several with commas"
            )
    found = artifact.native.manifest_sha256
    if found in pins:
        return True
    raise errors.PolicyRefusedError(
        f"open artifact {artifact.native.path}: the manifest of {artifact.shard} has the SHA-256 {found}, and {PINS} "
        f"allows only {', '.join(pins)}",
        stage="open",
        remedy=f"name the artifact that is meant, or change {PINS}",
    )


def facts_of(artifact: Artifact) -> Facts:
    """What can be seen now of the blob that the artifact holds open."""
    native = artifact.native
    info = os.fstat(native.blob_fd)
    # A second change within one tick leaves no trace in the time stamps, so the first one has to be older. By a clock that
    # was set back a little it is yet to come.
    while abs(time.time() - info.st_ctime) < _tick_of(info):
        time.sleep(_TICK_S)
        info = os.fstat(native.blob_fd)
    system = mounts.of_descriptor(native.blob_fd)
    return Facts(
        manifest_sha256=native.manifest_sha256,
        shard_root=native.shard_root,
        blob_bytes=info.st_size,
        inode=info.st_ino,
        mtime_ns=info.st_mtime_ns,
        ctime_ns=info.st_ctime_ns,
        fs_type=system.type,
        fs_uuid=system.uuid,
    )


def _tick_of(info: os.stat_result) -> float:
    return _TICK_S if info.st_ctime_ns % 1_000_000_000 else _COARSE_TICK_S


def require_unchanged(artifact: Artifact, before: Facts) -> None:
    """Raise unless the open blob still is what it was: the end of a restore that compared no digests.

    Raises:
        NotAdmittedError: Something differs; both values are named.
    """
    differing = _differences(before, facts_of(artifact), "was")
    if differing:
        raise _not_admitted(artifact, f"its blob changed while it was read: {differing}")


def require_admissible(artifact: Artifact, environ: Mapping[str, str]) -> None:
    """Refuse what `write_marker` would refuse, before gigabytes are read in vain. Makes the trust folder.

    Raises:
        PolicyRefusedError: A pin names other manifests, or the trust folder can't be trusted or is in the artifact.
        NotAdmittedError: Others may write to the artifact.
        IoError: The trust folder can't be made.
    """
    require_pin(artifact, environ)
    _refuse_what_others_may_write(artifact, environ)
    folder = state.path_of(state.TRUST, environ)
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(artifact.native.path)):
        raise errors.PolicyRefusedError(
            f"admit artifact {artifact.native.path}: the trust folder {folder} is inside it, and artifacts never change",
            remedy=f"let {state.TRUST.variable} name another folder",
        )
    with state.opened(state.TRUST, environ, make=True):
        pass


def write_marker(artifact: Artifact, before: Facts, environ: Mapping[str, str]) -> None:
    """Record that the blob passed a full verification: every byte of it was read and compared since ``before``.

    Args:
        artifact: The opened artifact.
        before: From `facts_of` or an `Admission`, taken before the first byte was read.
        environ: Environment variables.
    Raises:
        NotAdmittedError: The blob changed since ``before``, or others may write to the artifact.
        PolicyRefusedError: As of `require_admissible`.
        IoError, NoSpaceError: The marker can't be written.
    """
    require_admissible(artifact, environ)
    require_unchanged(artifact, before)
    device = os.fstat(artifact.native.blob_fd).st_dev
    marker = {
        "format": FORMAT,
        **dataclasses.asdict(before),
        "noted": {"device": f"{os.major(device)}:{os.minor(device)}", "boot_id": _boot_id()},
        "version": VERSION,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }
    for name in ("inode", "mtime_ns", "ctime_ns"):
        marker[name] = str(marker[name])  # they may pass 2^53 - 1 (docs/format.md, "Canonical JSON")
    with state.opened(state.TRUST, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        state.write_file(folder, _file_name(before), json.dumps(marker, indent=1).encode() + b"\n")


def revoke(artifact: Artifact, environ: Mapping[str, str]) -> bool:
    """Remove the marker of a file whose bytes turned out wrong; say whether there was one.

    A drive can lose bytes and leave the time stamps as they were, so the marker would still fit.
    """
    facts = facts_of(artifact)
    try:
        _matching_marker(artifact, facts, environ)
    except errors.NotAdmittedError:
        return False
    with state.opened(state.TRUST, environ) as folder:
        return folder is not None and state.remove_file(folder, _file_name(facts))


def _matching_marker(artifact: Artifact, facts: Facts, environ: Mapping[str, str]) -> _Marker:
    try:
        where = state.path_of(state.TRUST, environ) / _file_name(facts)
        with state.opened(state.TRUST, environ) as folder:
            data = None if folder is None else _read_marker(artifact, folder, where)
    except (errors.PolicyRefusedError, errors.IoError) as cause:
        raise _not_admitted(artifact, cause.message, cause.remedy) from cause
    if data is None:
        raise _not_admitted(artifact, f"there is no trust marker {where}")
    try:
        marker = _parse(data)
    except ValueError as cause:
        raise _not_admitted(artifact, f"the trust marker {where} is damaged: {cause}") from cause
    differing = _differences(marker.facts, facts, "in the marker")
    if differing:
        raise _not_admitted(
            artifact, f"the trust marker of {marker.written_at} is for another file or another state of it: {differing}"
        )
    return marker


def _read_marker(artifact: Artifact, folder: int, where: Path) -> bytes | None:
    try:
        return state.read_file(folder, where.name, _MAX_MARKER_BYTES)
    except (errors.PolicyRefusedError, errors.IoError) as cause:
        why = f"of its trust marker in {where.parent}: {cause.message}"
        raise _not_admitted(artifact, why, f"rm {shlex.quote(str(where))}") from cause


def _parse(data: bytes) -> _Marker:
    found = records.load(data, _SCHEMA)
    return _Marker(Facts(**{field.name: found[field.name] for field in dataclasses.fields(Facts)}), found["written_at"])


def _differences(recorded: Facts, found: Facts, when: str) -> str:
    """The fields that differ with both values; empty when none does."""
    pairs = (
        (field.name, getattr(recorded, field.name), getattr(found, field.name)) for field in dataclasses.fields(Facts)
    )
    return ", ".join(f"{name} is {now} and {when} {then}" for name, then, now in pairs if then != now)


class _Entry(NamedTuple):
    """A file or folder of the artifact, whether its mount is read-only, and whether it has an access control list."""

    name: str
    info: os.stat_result
    read_only: bool
    acl: bool


def _refuse_what_others_may_write(artifact: Artifact, environ: Mapping[str, str]) -> None:
    group = _trusted_group(environ)
    try:
        entries = list(_entries(artifact))
    except OSError as cause:
        raise errors.from_errno(
            cause, f"look who may write to artifact {artifact.native.path}", stage="open"
        ) from cause
    for entry in entries:
        mode = entry.info.st_mode
        if entry.read_only or not mode & (stat.S_IWGRP | stat.S_IWOTH):
            continue
        if not mode & stat.S_IWOTH and entry.info.st_gid == group:
            if not entry.acl:
                continue
            # The mode's bits of the group are then a mask: the list may let in whoever it likes.
            how = f"setfacl -R -b {shlex.quote(artifact.native.path)}"
            raise _not_admitted(artifact, f"the access control list of its {entry.name} says who may write to it", how)
        who = "anybody" if mode & stat.S_IWOTH else f"group {entry.info.st_gid}"
        how = f"chmod -R go-w {shlex.quote(artifact.native.path)}, or mount it read-only"
        if not mode & stat.S_IWOTH:
            how += f", or, if the group is the pod's own fsGroup, set {GROUP}={entry.info.st_gid}"
        raise _not_admitted(artifact, f"{who} may write to its {entry.name} (mode {stat.S_IMODE(mode):04o})", how)


def _entries(artifact: Artifact) -> Iterator[_Entry]:
    """Everything that the artifact's open shard depends on; blob and folder by the descriptors that are open."""
    native = artifact.native
    shard = native.shard_dir_fd
    yield _entry("weights.safetensors", native.blob_fd)
    yield _entry(artifact.shard, shard)
    for name in ("manifest.json", "leaves.bin"):
        with _opened(name, shard) as fd:
            yield _entry(name, fd)
    with _opened("..", shard) as above:
        yield _entry("folder", above)
        with _opened("artifact.json", above) as fd:
            yield _entry("artifact.json", fd)


@contextlib.contextmanager
def _opened(name: str, folder: int) -> Iterator[int]:
    # O_NONBLOCK: opening a FIFO must not wait for its writer.
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _entry(name: str, fd: int) -> _Entry:
    read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
    return _Entry(name, os.fstat(fd), read_only, _has_acl(fd))


def _has_acl(fd: int) -> bool:
    try:
        return _ACL in os.listxattr(fd)
    except OSError as cause:
        if cause.errno == errno.ENOTSUP:
            return False  # a file system without extended attributes has none
        raise


def _trusted_group(environ: Mapping[str, str]) -> int | None:
    text = environ.get(GROUP, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < (1 << 32) - 1):
        raise errors.RequestInvalidError(f"read {GROUP}: {text[:80]!r} is no group", remedy="give the group's number")
    return int(text)


def _not_admitted(artifact: Artifact, why: str, first: str = "") -> errors.NotAdmittedError:
    """Every doubt ends in the same command; what has to be done before it stands ``first``."""
    command = f"run: coldsnap verify --admit {shlex.quote(artifact.native.path)}"
    return errors.NotAdmittedError(
        f"trust {artifact.shard} of artifact {artifact.native.path}: {why}",
        stage="open",
        remedy=f"{first}, then {command}" if first else command,
    )


def _file_name(facts: Facts) -> str:
    return f"{facts.manifest_sha256}.json"


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
