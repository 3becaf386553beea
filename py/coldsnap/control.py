"""The control socket of a running engine: how it is found, who may use it, and how a program asks.

A Unix socket, 0600, in a folder that nobody else may write to. The engine asks the kernel whose process a client is, and
answers its own user and root; a client asks as well, and believes its own user and root. A client sends one JSON object on one line; what comes back is any number of
lines with ``event``, at least one every few seconds, and one last line with ``ok``:

    {"format": 1, "operation": "status"}
    {"format": 1, "operation": "capture", "store": "/models/store"}       null: into the engine's own

    {"format": 1, "event": "progress", "done_bytes": 65536, "total_bytes": 262144}
    {"format": 1, "ok": true, "report": {...}, "receipt": {...}}
    {"format": 1, "ok": false, "error": {"code": ..., "message": ..., "stage": ..., "remedy": ...}, "receipt": ...}
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap.receipts import Receipt

FORMAT = 1
VARIABLE = "COLDSNAP_CONTROL"
MAX_REQUEST_BYTES, MAX_ANSWER_BYTES = 16 << 10, 8 << 20
BEAT_S = 1.0  # between two events while an operation is under way
_SILENCE_S = 60.0  # a process that is stopped, or so short of memory that nobody should wait for it
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NOBODY = (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)


def require_same_user(connection: socket.socket, doing: str) -> None:
    """Refuse a process at the other end that is neither this user's nor root's.

    Raises:
        PolicyRefusedError: It is another user's.
    """
    size = _PEER.size
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if user not in (os.geteuid(), 0):
        raise errors.PolicyRefusedError(
            f"{doing}: the process at the other end is user {user}, and this one is user {os.geteuid()}",
            remedy=f"ask as user {os.geteuid()} or as root",
        )


def line_of(document: dict[str, Any]) -> bytes:
    """A document as it goes over the socket."""
    return json.dumps({"format": FORMAT, **document}, ensure_ascii=True).encode() + b"\n"


def ask(
    path: str, request: dict[str, Any], progress: Callable[[int, int], object] | None = None
) -> tuple[dict[str, Any] | None, Receipt | None]:
    """Send one request to a running engine, and wait for its answer.

    Args:
        path: Of the control socket.
        request: ``operation`` and what belongs to it.
        progress: Called with (bytes done, bytes in total). An exception of it ends the waiting, not the operation.
    Returns:
        What it found out, and its receipt; either may be None.
    Raises:
        RequestInvalidError: No engine listens there.
        PolicyRefusedError: Whoever listens is another user, or this one may not ask.
        TimedOutError: Nothing came for a minute.
        IoError: The connection broke, or what came is no answer.
        What the engine refuses, with its code; with its ``receipt`` where there is one.
    """
    doing = f"ask the engine at {path}"
    with _connected(Path(path), doing) as connection:
        connection.sendall(line_of(request))
        for document in _answers(connection, doing):
            if document.get("event") == "progress" and progress is not None:
                progress(int(document["done_bytes"]), int(document["total_bytes"]))
            if "ok" in document:
                return _succeeded(document, doing)
    raise errors.IoError(f"{doing}: it ended before it had answered", remedy="look for its failure in its own log")


@contextlib.contextmanager
def _connected(path: Path, doing: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SILENCE_S)
        try:
            _connect(connection, path)
        except OSError as cause:
            if cause.errno in _NOBODY:
                raise errors.RequestInvalidError(
                    f"{doing}: no engine listens there: {cause.strerror}",
                    remedy='start one with {"coldsnap": {"control": PATH}}',
                ) from cause
            if cause.errno in (errno.EACCES, errno.EPERM):
                raise errors.PolicyRefusedError(
                    f"{doing}: {cause.strerror}", remedy="ask as the engine's own user or as root"
                ) from cause
            raise errors.from_errno(cause, doing) from cause
        if os.geteuid() != 0:  # root may ask anybody's engine
            require_same_user(connection, doing)
        try:
            yield connection
        except TimeoutError as cause:
            if isinstance(cause, errors.Error):
                raise
            raise errors.TimedOutError(
                f"{doing}: nothing came for {_SILENCE_S:.0f} s", remedy="look whether it still runs"
            ) from cause
        except OSError as cause:
            if isinstance(cause, errors.Error):
                raise
            raise errors.from_errno(cause, doing) from cause


def _connect(connection: socket.socket, path: Path) -> None:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")  # an address has room for 107 bytes
    finally:
        os.close(folder)


def _answers(connection: socket.socket, doing: str) -> Iterator[dict[str, Any]]:
    with connection.makefile("rb") as lines:
        while line := lines.readline(MAX_ANSWER_BYTES + 1):
            try:
                document = json.loads(line)
                if len(line) > MAX_ANSWER_BYTES or not isinstance(document, dict) or document["format"] != FORMAT:
                    raise ValueError(line[:80])
            except (ValueError, KeyError, RecursionError) as cause:
                raise errors.IoError(f"{doing}: what came is no answer: {line[:80]!r}") from cause
            yield document


def _succeeded(document: dict[str, Any], doing: str) -> tuple[dict[str, Any] | None, Receipt | None]:
    try:
        receipt = None if document["receipt"] is None else Receipt(**document["receipt"])
        if document["ok"] is True:
            return document["report"], receipt
        error = {name: str(document["error"][name]) for name in ("code", "message", "stage", "remedy")}
    except (KeyError, TypeError) as cause:
        raise errors.IoError(f"{doing}: what came is no answer: {cause}") from cause
    failure = errors.from_native(**error)  # type: ignore[arg-type]
    failure.receipt = receipt
    raise failure
