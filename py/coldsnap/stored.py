"""What lies in a store's folders (`coldsnap.store`), read as it is: nobody here takes its lock, and `point` wants it held."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import errors, records
from coldsnap.new_file import read_small, replace_file, saying

FORMAT = 1
CURRENT = "current"
_MAX_CURRENT_BYTES, _MAX_ARTIFACT_BYTES = 4096, 64 << 20
_CURRENT_SCHEMA = records.record(artifact_root=records.text(records.HEX64), format=records.whole(FORMAT, FORMAT))


class StoredArtifact(NamedTuple):
    """One artifact of a store.

    Attributes:
        identity_digest: SHA-256 of its identity, in hex; with ``artifact_root`` it names the folder.
        artifact_root: SHA-256 that names its content, in hex.
        path: Its folder.
        current: Whether `Store.open` gives this one for its identity.
        nbytes: Bytes of its blobs; 0 where ``problem`` says why they are not known.
        age_s: Seconds since it was published, by the clock of now.
        problem: Why it can't be read; empty when its description can. `coldsnap.verify` looks at its data.
    """

    identity_digest: str
    artifact_root: str
    path: Path
    current: bool
    nbytes: int
    age_s: float
    problem: str


def point(folder: Path, root: str) -> None:
    """Make an artifact the current one; the caller has the store's lock."""
    with saying(f"remove what a killed process left in {folder}", stage="publish"):
        for path in folder.glob(f".{CURRENT}.*"):
            path.unlink()
    if current_root(folder) != root:
        text = json.dumps({"artifact_root": root, "format": FORMAT}, separators=(",", ":"))
        replace_file(folder, CURRENT, text.encode())


def current_root(folder: Path) -> str | None:
    """The artifact that is current for the identity of this folder, if there is one.

    Raises:
        FormatInvalidError: The file that says so can't be read.
    """
    path = folder / CURRENT
    data = read_small(path, _MAX_CURRENT_BYTES)
    if data is None:
        return None
    try:
        root: str = records.load(data, _CURRENT_SCHEMA)["artifact_root"]
    except ValueError as cause:
        raise errors.FormatInvalidError(
            f"read {path}: {cause}", stage="open", remedy="remove the file, and capture again or write it anew"
        ) from cause
    return root


def digest_folders(folder: Path) -> list[Path]:
    """The folders in this one that a digest names: identities of a store, or artifacts of an identity."""
    with saying(f"list {folder}"):
        try:
            return sorted(path for path in folder.iterdir() if records.HEX64.fullmatch(path.name) and path.is_dir())
        except (FileNotFoundError, NotADirectoryError):  # maybe since just now: others collect here too
            return []


def shard_folders(artifact: Path) -> list[Path]:
    """The shards that an artifact has; none once it was collected, which others may do at any time."""
    try:
        with os.scandir(artifact) as entries:
            return sorted(artifact / entry.name for entry in entries if entry.name.startswith("shard-"))
    except FileNotFoundError:
        return []


def described(path: Path, current: str | None) -> StoredArtifact:
    """What the folder of an artifact tells about it, beside the root that is current."""
    nbytes, problem, published = 0, "", 0.0
    try:
        published = path.stat().st_mtime
        nbytes = sum(shard["blob_bytes"] for shard in _shards(path))
    except (OSError, ValueError, KeyError, TypeError, errors.Error) as cause:
        problem = f"its artifact.json can't be read: {cause}"
    age_s = max(0.0, time.time() - published)
    return StoredArtifact(path.parent.name, path.name, path, path.name == current, nbytes, age_s, problem)


def _shards(path: Path) -> list[dict[str, Any]]:
    data = read_small(path / "artifact.json", _MAX_ARTIFACT_BYTES)
    if data is None:
        raise ValueError("there is none")
    shards: list[dict[str, Any]] = json.loads(data)["shards"]
    return shards
