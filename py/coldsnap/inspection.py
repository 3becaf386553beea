"""What an artifact is and holds, as one report: for ``coldsnap inspect``, for requests, and for programs."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from typing import Any

from coldsnap import errors, quarantine, state, trust
from coldsnap.artifact import Artifact, open_artifact, shard_names

FORMAT = 1


def report(path: str | os.PathLike[str], shard: str | None = None) -> dict[str, Any]:
    """Describe an artifact. Sizes, headers, manifests and leaves are checked on the way; the payload is not read.

    Args:
        path: The artifact's folder, the one with ``artifact.json``.
        shard: Which shard alone; all of them where it is None.
    Returns:
        Values that JSON can hold, and no path but ``path``: ``format``, ``path``, ``artifact_root``, ``identity``,
        ``capture``, ``payload_bytes`` and ``blob_bytes`` of the shards that are described, ``quarantine`` (None, or the
        record; with the code ``unknown`` where it can't be read), and for each of ``shards``: ``name``, roots, sizes in bytes, ``resident`` (share of the blob in the page
        cache, 0 to 1; None where not known), ``trust`` (``state`` and ``detail``), ``scalars``, ``dtypes`` (tensors and
        their bytes by dtype), ``shared`` (names by extent, where an extent has several), ``tensors``, ``extents``.
        ``state`` is ``admitted``, ``pinned`` or the code of the refusal: what a restore without digests would meet.
    Raises:
        RequestInvalidError, FormatInvalidError, DataLossError, IoError: As of `coldsnap.open`.
    """
    names = shard_names(path) if shard is None else [shard]
    shards = []
    for name in names:
        with open_artifact(path, shard=name) as artifact:
            shards.append((artifact.artifact_root, _shard(artifact)))
            root, identity, capture = artifact.artifact_root, artifact.identity, artifact.capture
    if len({each for each, _ in shards}) != 1:
        raise errors.DataLossError(
            f"inspect artifact {os.fspath(path)}: another artifact took its place meanwhile",
            stage="open",
            remedy="inspect it again",
        )
    return {
        "format": FORMAT,
        "path": os.fspath(path),
        "artifact_root": root,
        "identity": identity,
        "capture": capture,
        "payload_bytes": sum(found["payload_bytes"] for _, found in shards),
        "blob_bytes": sum(found["blob_bytes"] for _, found in shards),
        "quarantine": _quarantine(root),
        "shards": [found for _, found in shards],
    }


def _shard(artifact: Artifact) -> dict[str, Any]:
    native = artifact.native
    dtypes: dict[str, dict[str, int]] = defaultdict(lambda: {"tensors": 0, "nbytes": 0})
    holders: dict[int, list[str]] = defaultdict(list)
    tensors = []
    for name, info in artifact.items():
        tensors.append({"name": name, **info._asdict()})
        dtypes[info.dtype]["tensors"] += 1
        dtypes[info.dtype]["nbytes"] += info.nbytes
        if info.extent is not None:
            holders[info.extent].append(name)
    return {
        "name": artifact.shard,
        "shard_root": native.shard_root,
        "manifest_sha256": native.manifest_sha256,
        "payload_bytes": artifact.payload_bytes,
        "blob_bytes": artifact.blob_bytes,
        "data_start": artifact.data_start,
        "resident": _resident(artifact),
        "trust": _trust(artifact),
        "scalars": artifact.scalars,
        "dtypes": {dtype: dtypes[dtype] for dtype in sorted(dtypes)},
        "shared": {str(extent): names for extent, names in sorted(holders.items()) if len(names) > 1},
        "tensors": tensors,
        "extents": [extent._asdict() for extent in artifact.extents],
    }


def _resident(artifact: Artifact) -> float | None:
    try:
        return artifact.native.residency()
    except errors.Error:
        return None  # the report says less where the system can't tell


def _trust(artifact: Artifact) -> dict[str, str]:
    """What a restore that leaves out digests would be told."""
    try:
        admission = trust.check(artifact, os.environ)
    except (errors.NotAdmittedError, errors.PolicyRefusedError, errors.RequestInvalidError) as refused:
        return {"state": refused.code, "detail": _without_state_paths(refused.message)}
    return {"state": "admitted" if admission.admitted else "pinned", "detail": admission.detail}


def _quarantine(root: str) -> dict[str, str] | None:
    try:
        record = quarantine.find(root, os.environ)
    except (errors.PolicyRefusedError, errors.RequestInvalidError, errors.IoError) as cause:
        # Who asks what an artifact holds should learn it; that nobody knows about its quarantine is part of the answer.
        return {"artifact_root": root, "code": "unknown", "message": _without_state_paths(cause.message)}
    return None if record is None else record._asdict()


def _without_state_paths(text: str) -> str:
    with contextlib.suppress(errors.Error):
        text = text.replace(str(state.path_of(state.TRUST, os.environ)), "trust")
        text = text.replace(str(state.state_dir(os.environ)), "the state folder")
    return text
