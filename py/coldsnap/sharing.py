"""Equal extents of one store's artifacts, stored once where the file system can share them (xfs, btrfs).

Done to a finished shard before it is published. The kernel compares the bytes before it shares them (FIDEDUPERANGE), so
a damaged artifact never takes the place of right bytes: it is found. Files are never hard-linked: a link changes a
file's ctime, and with that voids its trust marker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap.new_file import read_small
from coldsnap.settings import LEAF_BYTES, MIB
from coldsnap.store import Store
from coldsnap.stored import shard_folders

# linux/fs.h: one source range and one destination; at most this much at a time (btrfs).
_FIDEDUPERANGE = 0xC0189436
_REQUEST = struct.Struct("=QQHHI qQQiI")
_MOST_AT_ONCE = 16 * MIB
_DIFFERS = 1
# The file system has no such call, the two are on different ones, or this user may not.
_REFUSALS = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOSYS}
_MAX_MANIFEST_BYTES = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOB = "weights.safetensors"

_Key = tuple[int, str]  # bytes and sha256t


def share(store: Store, shard: Path) -> list[dict[str, str]]:
    """Share the extents of a shard that is not published yet with equal ones of the store's artifacts.

    Args:
        store: Whose artifacts are looked through.
        shard: The shard's folder: blob and manifest, on the drive.
    Returns:
        Reasons for the receipt; none where nothing is equal. ``extents_shared`` and ``extents_copied`` have numbers of
        extents and bytes, ``extents_differ`` names an artifact with other bytes under the same digest.
    Raises:
        IoError: The shard can't be read.
    """
    mine = {key: offset for key, offset in _extents(shard)}
    if not mine:
        return []
    known = _known(store, set(mine))
    shared = copied = 0
    refused: OSError | None = None
    reasons = []
    with _opened(shard / _BLOB) as blob:
        for key, (path, offset) in known.items():
            nbytes = -(-key[0] // LEAF_BYTES) * LEAF_BYTES  # with its padding, which is zero in both
            if refused is None:
                try:
                    with _opened(path) as other:
                        same = _dedupe(other, offset, blob, mine[key], nbytes)
                except OSError as cause:
                    if cause.errno == errno.ENOENT:  # collected in between
                        continue
                    if cause.errno not in _REFUSALS:
                        raise errors.from_errno(cause, f"share an extent of {path.parent.parent.name}") from cause
                    refused = cause
                else:
                    if same:
                        shared += 1
                        continue
                    reasons.append(_differs(path, offset))
            copied += 1
    sizes = sum(key[0] for key in known)
    if shared:
        reasons.append({"code": "extents_shared", "detail": f"{shared} extents are stored once for several artifacts"})
    if refused is not None:
        detail = (
            f"{copied} extents, of {sizes} bytes that are equal, are stored again: {os.strerror(refused.errno or 0)}"
        )
        reasons.append({"code": "extents_copied", "detail": detail})
    return reasons


def _differs(path: Path, offset: int) -> dict[str, str]:
    artifact = path.parent.parent.name
    detail = (
        f"artifact {artifact} has other bytes than this one for an extent with the same digest, at offset {offset} of "
        f"its {_BLOB}: one of the two is damaged; coldsnap verify tells which"
    )
    return {"code": "extents_differ", "detail": detail}


def _known(store: Store, wanted: set[_Key]) -> dict[_Key, tuple[Path, int]]:
    """Where the store has extents like these: blob and offset."""
    known: dict[_Key, tuple[Path, int]] = {}
    for artifact in store.ls():
        if artifact.problem or len(known) == len(wanted):
            continue
        for shard in shard_folders(artifact.path):
            with contextlib.suppress(ValueError, KeyError, TypeError, errors.Error):  # whoever opens it will say
                for key, offset in _extents(shard):
                    if key in wanted:
                        known.setdefault(key, (shard / _BLOB, offset))
    return known


def _extents(shard: Path) -> Iterator[tuple[_Key, int]]:
    """The extents that have groups of their own: size and digest, and where they stand in the blob."""
    data = read_small(shard / "manifest.json", _MAX_MANIFEST_BYTES)
    columns: dict[str, list[Any]] = json.loads(data or b"{}")["extents"]
    for offset, nbytes, digest in zip(columns["file_offset"], columns["nbytes"], columns["sha256t"], strict=True):
        if nbytes >= LEAF_BYTES:
            yield (nbytes, digest), offset


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, _READ)
    try:
        yield fd
    finally:
        os.close(fd)


def _dedupe(source: int, source_offset: int, target: int, target_offset: int, nbytes: int) -> bool:
    """Let the kernel store both ranges once if their bytes are the same; whether they are."""
    done = 0
    while done < nbytes:
        most = min(_MOST_AT_ONCE, nbytes - done)
        request = bytearray(_REQUEST.pack(source_offset + done, most, 1, 0, 0, target, target_offset + done, 0, 0, 0))
        fcntl.ioctl(source, _FIDEDUPERANGE, request)
        *_, shared, status, _reserved = _REQUEST.unpack(request)
        if status < 0:
            raise OSError(-status, os.strerror(-status))
        if status == _DIFFERS:
            return False
        if shared == 0:
            raise OSError(errno.EINVAL, "the file system shared nothing")
        done += shared
    return True
