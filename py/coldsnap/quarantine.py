"""Quarantine: the record that an artifact failed on this machine, so that the next start does not fail on it again.

One small JSON file for each artifact root, in ``quarantine`` of the state folder. Whoever finds bad data writes it. A
restore that compares digests does not need it: it refuses bad bytes by itself. Programs that may choose, such as an
engine that can load its checkpoint in the ordinary way, look here first. A person takes the record away again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from coldsnap import errors, records, state
from coldsnap.new_file import read_small
from coldsnap.version import VERSION

FORMAT = 1
_MAX_BYTES = 64 << 10
_MAX_TEXT = 4000
_MAX_ARTIFACT_BYTES = 1 << 20  # thousands of shards; parsing more for a note would take more memory than opening
_FILE_NAME = re.compile(r"([0-9a-f]{64})\.json")


class Record(NamedTuple):
    """Why an artifact is under quarantine.

    Attributes:
        artifact_root: SHA-256 in hex that names its content. Every copy of it is meant, wherever it lies.
        code: Of the error, as in ``receipt.error["code"]``; ``unknown`` where the record itself is damaged.
        message: What was found: the extent, a tensor in it, the piece.
        operation: What found it: ``verify``, ``hydrate``, ...
        version: Of the coldsnap that wrote the record.
        written_at: When, UTC, by ISO 8601.
    """

    artifact_root: str
    code: str
    message: str
    operation: str
    version: str
    written_at: str


_TEXT = records.text(rf"[^\x00]{{0,{_MAX_TEXT}}}")
_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT),
    artifact_root=records.text(records.HEX64),
    code=records.text(r"[a-z_]{1,40}"),
    message=_TEXT,
    operation=records.text(),
    version=records.text(),
    written_at=records.text(),
)


def write(artifact_root: str, failure: errors.Error, operation: str, environ: Mapping[str, str]) -> None:
    """Put an artifact under quarantine, durably; a former record of it is replaced.

    Args:
        artifact_root: Which.
        failure: What was found.
        operation: What found it.
        environ: Environment variables.
    Raises:
        PolicyRefusedError: The state folder can't be trusted.
        IoError, NoSpaceError: The record can't be written.
    """
    written_at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    message = failure.message.replace("\0", "")[:_MAX_TEXT]
    record = Record(artifact_root, failure.code, message, operation, VERSION, written_at)
    data = json.dumps({"format": FORMAT, **record._asdict()}, indent=1).encode() + b"\n"
    with state.opened(state.QUARANTINE, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        state.write_file(folder, f"{artifact_root}.json", data)


def find(artifact_root: str, environ: Mapping[str, str]) -> Record | None:
    """The record of an artifact; None where it is not under quarantine. A damaged record counts as one.

    Raises:
        PolicyRefusedError: The state folder or the record can't be trusted.
        IoError: It can't be read.
    """
    with state.opened(state.QUARANTINE, environ) as folder:
        return None if folder is None else _read(folder, artifact_root)


def every(environ: Mapping[str, str]) -> list[Record]:
    """All records, by artifact root.

    Raises:
        PolicyRefusedError, IoError: As of `find`.
    """
    with state.opened(state.QUARANTINE, environ) as folder:
        if folder is None:
            return []
        try:
            names = sorted(os.listdir(folder))
        except OSError as cause:
            raise errors.from_errno(cause, "list the quarantine in the state folder") from cause
        roots = [found[1] for name in names if (found := _FILE_NAME.fullmatch(name))]
        records_found = [_read(folder, root) for root in roots]
    return [record for record in records_found if record is not None]


def remove(artifact_root: str, environ: Mapping[str, str]) -> bool:
    """End the quarantine of an artifact; say whether it was under one.

    Raises:
        PolicyRefusedError: The state folder can't be trusted.
        IoError: The record can't be removed.
    """
    with state.opened(state.QUARANTINE, environ) as folder:
        return folder is not None and state.remove_file(folder, f"{artifact_root}.json")


def note(artifact_root: str | None, failure: errors.Error, operation: str) -> list[dict[str, str]]:
    """`write` for an operation that fails anyway: what the receipt says of it. The failure stays the one to report."""
    if artifact_root is None:
        return []
    try:
        write(artifact_root, failure, operation, os.environ)
    except errors.Error as cause:
        return [{"code": "quarantine_failed", "detail": f"{artifact_root} could not be recorded: {cause}"}]
    return [{"code": "quarantined", "detail": artifact_root}]


def note_unopened(path: object, failure: BaseException, operation: str) -> list[dict[str, str]]:
    """`note` for an artifact that could not even be opened, where its ``artifact.json`` still says which it is."""
    # A description that breaks the format can't be believed about its name either.
    if not isinstance(failure, errors.DataLossError) or not isinstance(path, str | os.PathLike):
        return []
    try:
        data = read_small(Path(os.fsdecode(path)) / "artifact.json", _MAX_ARTIFACT_BYTES)
        found = json.loads(data or b"null")
        root = found["artifact_root"] if isinstance(found, dict) else None
        records.text(records.HEX64)(root, "$.artifact_root")
    except (errors.Error, ValueError, KeyError, RecursionError):
        return []  # a folder that does not say what it is has no name to be remembered by
    return note(root, failure, operation)


def _read(folder: int, artifact_root: str) -> Record | None:
    name = f"{artifact_root}.json"
    data = state.read_file(folder, name, _MAX_BYTES)
    if data is None:
        return None
    try:
        found = records.load(data, _SCHEMA)
        if found["artifact_root"] != artifact_root:
            raise ValueError(f"$.artifact_root is {found['artifact_root']}, and the file is named {name}")
    except ValueError as cause:
        return Record(artifact_root, "unknown", f"the record {name} is damaged: {cause}", "", "", "")
    del found["format"]
    return Record(**found)
