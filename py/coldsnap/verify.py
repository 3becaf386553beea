"""Reading a whole artifact and comparing every digest; with ``admit``, recording that this very file passed."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from coldsnap import errors, log, quarantine, receipts, settings, trust
from coldsnap.artifact import Artifact, load_native, open_artifact, shard_names
from coldsnap.blob_check import BlobCheck, check_all
from coldsnap.receipts import Receipt
from coldsnap.ticker import Ticker, check_arguments


def verify(
    path: str | os.PathLike[str] | Artifact,
    *,
    admit: bool = False,
    progress: Callable[[int, int], object] | None = None,
    cancel: threading.Event | None = None,
) -> Receipt:
    """Read every byte of an artifact and compare: header, padding, CRC-32 and SHA-256 of every extent, leaves.

    Args:
        path: The artifact's directory, for all of its shards; or an opened artifact, for the shard that is open.
        admit: Whether to write a trust marker for each shard once all have passed, so that restores on this machine
            may leave digests out.
        progress: Called with (bytes done, bytes in total), at most 20 times a second, last with both equal. An
            exception of it cancels and is raised.
        cancel: Set it to stop.
    Returns:
        The receipt; ``payload_bytes`` is that of all shards. Of each admitted shard, a reason ``admitted`` has the
        manifest's digest, for COLDSNAP_TRUST_MANIFEST.
    Raises:
        DataLossError: Something differs; it names the extent, a tensor in it and the 64 KiB piece. A trust marker of
            this file is removed, and the artifact is put under quarantine (docs/commands.md).
        FormatInvalidError: The artifact breaks the format.
        NotAdmittedError: With ``admit``: others may write to the artifact, or it changed while it was read.
        PolicyRefusedError: With ``admit``: COLDSNAP_TRUST_MANIFEST pins others, or the trust folder can't be trusted.
        RequestInvalidError: An argument or variable is wrong.
        IoError: A file can't be read, or a marker not be written.
        Cancelled: ``cancel`` was set.
        Each has ``receipt``, the receipt of the failure.
    Source:
        docs/trust.md; byte layout: docs/format.md.
    """
    begin = time.monotonic()
    account = receipts.Account("verify", provider="python", place="host")
    account.settings = {"verify": settings.Setting("crc32+sha256", "default")}
    try:
        if not isinstance(admit, bool):
            raise errors.RequestInvalidError(f"verify: admit is a {type(admit).__name__}", remedy="give True or False")
        check_arguments("verify", progress, cancel)
        with _opened(path) as shards:
            account.stages_s = {"open": time.monotonic() - begin}
            _verify(shards, admit, Ticker(progress, cancel), account)
    except BaseException as failure:
        if account.artifact_root is None:
            account.reasons = quarantine.note_unopened(path, failure, "verify")
        account.wall_s = time.monotonic() - begin
        with contextlib.suppress(AttributeError, TypeError):  # somebody else's exception may have no room for it
            failure.receipt = log.done(account.receipt(failure))  # type: ignore[attr-defined]
        raise
    account.wall_s = time.monotonic() - begin
    return log.done(account.receipt())


def _verify(shards: Sequence[Artifact], admit: bool, ticker: Ticker, account: receipts.Account) -> None:
    account.artifact_root = shards[0].artifact_root
    account.payload_bytes = sum(shard.payload_bytes for shard in shards)
    residency = {"before": _residency(shards), "after": None}
    account.residency = residency
    facts = [_prepared(shard) for shard in shards] if admit else []
    threads = settings.default_read_threads(load_native().limits())
    with contextlib.ExitStack() as stack:
        checks = [stack.enter_context(contextlib.closing(BlobCheck(shard))) for shard in shards]
        try:
            check_all(checks, threads, ticker)
        except errors.DataLossError as failure:
            account.reasons = note_damage(shards, failure, "verify")
            raise
        finally:
            busy = {"read": sum(check.read_s for check in checks), "digest": sum(check.digest_s for check in checks)}
            account.stages_s = {**account.stages_s, **{name: total / threads for name, total in busy.items()}}
    residency["after"] = _residency(shards)
    extents = sum(len(shard.extents) for shard in shards)
    account.routes = [{"route": "python", "bytes": account.payload_bytes, "extents": extents}]
    for shard, before in zip(shards, facts, strict=admit):
        trust.write_marker(shard, before, os.environ)
    account.reasons = [{"code": "admitted", "detail": f"{s.shard} {s.native.manifest_sha256}"} for s in shards if admit]


def _prepared(shard: Artifact) -> trust.Facts:
    """What is needed before the first byte is read, so that a marker can be written after the last."""
    trust.require_admissible(shard, os.environ)
    try:
        # A marker must not outlive bytes that a power cut takes back, nor miss stores through a mapping: those change
        # the time stamps again only once the page has been written back.
        os.fsync(shard.native.blob_fd)
    except OSError as cause:
        if cause.errno not in (errno.EINVAL, errno.EROFS):  # of file systems that are never written to
            raise errors.from_errno(cause, f"sync the blob of {shard.shard}", stage="file") from cause
    return trust.facts_of(shard)


def note_damage(shards: Sequence[Artifact], failure: errors.DataLossError, operation: str) -> list[dict[str, str]]:
    """Put an artifact that lost data under quarantine and remove its markers; the reasons for the receipt."""
    reasons = quarantine.note(shards[0].artifact_root, failure, operation)
    for shard in shards:
        try:
            if trust.revoke(shard, os.environ):
                reasons.append({"code": "marker_removed", "detail": f"{shard.shard} {shard.native.manifest_sha256}"})
        except errors.Error as cause:
            failure.remedy += f"; remove its trust marker, which could not be removed: {cause}"
    return reasons


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str] | Artifact) -> Iterator[list[Artifact]]:
    if isinstance(path, Artifact):
        yield [path]
        return
    with contextlib.ExitStack() as stack:
        shards = [stack.enter_context(open_artifact(path, shard=name)) for name in shard_names(path)]
        if len({shard.artifact_root for shard in shards}) != 1:
            raise errors.DataLossError(
                f"verify artifact {os.fspath(path)}: another artifact took its place meanwhile",
                stage="open",
                remedy="verify it again",
            )
        yield shards


def _residency(shards: Sequence[Artifact]) -> float | None:
    total = sum(shard.blob_bytes for shard in shards)
    try:
        return sum(shard.native.residency() * shard.blob_bytes for shard in shards) / total
    except errors.Error:
        return None  # a receipt says less where the system can't tell
