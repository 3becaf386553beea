"""The engine's side of its control socket (`coldsnap.control`): few connections, each with little time and memory.

What is asked is done in a thread of its own, and goes on where the client is gone: a client that asks again then hears
that it runs, or that it is done.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldsnap import control, errors, receipts, records, state
from coldsnap.control import FORMAT, MAX_REQUEST_BYTES, line_of

Tell = Callable[[int, int], object]
Answer = Callable[[dict[str, Any], Tell], dict[str, Any]]

_MOST_CONNECTIONS = 4
_REQUEST_S, _SEND_S = 5.0, 5.0  # for a whole request to come, and for a line of the answer to go
_STORE = r"/[^\x00]{0,4095}"
_LINGER_S = 0.5  # for a client that is refused before it has said all
_SCHEMAS = {
    "status": records.record(format=records.whole(FORMAT, FORMAT), operation=records.text("status")),
    "capture": records.record(
        format=records.whole(FORMAT, FORMAT),
        operation=records.text("capture"),
        store=records.optional(records.text(_STORE)),
    ),
}


class ControlServer:
    """Listens at a path until it is closed, or the process ends.

    Args:
        path: Of the socket, absolute. Its folder is made where it isn't there. A socket that a dead engine left is
            replaced.
        answer: Does what a request asks, in a thread of its own; told bytes done and in total on the way. Returns
            ``report`` and ``receipt``. Whatever it raises is the answer, too.
    Raises:
        PolicyRefusedError: The folder can't be trusted, something else is at the path, or another engine listens there.
        IoError: The socket can't be made.
    """

    def __init__(self, path: str, answer: Answer) -> None:
        self._path, self._answer = Path(path), answer
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._closed = False
        self._socket = self._listening()
        self._inode = os.lstat(self._path).st_ino
        atexit.register(self.close)
        threading.Thread(target=self._accept, name="coldsnap-control", daemon=True).start()

    def close(self) -> None:
        """Listen no more, and take the socket away if it is still this one."""
        atexit.unregister(self.close)
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def _listening(self) -> socket.socket:
        doing = f"listen at the control socket {self._path}"
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with state.private_folder(self._path.parent, control.VARIABLE, make=True) as folder:
                assert folder is not None  # it was to be made
                fcntl.flock(folder, fcntl.LOCK_EX)  # else two that start at once take each other's for a dead one's
                place = f"/proc/self/fd/{folder}/{self._path.name}"  # an address has room for 107 bytes
                _remove_left(place, doing)
                os.fchmod(found.fileno(), 0o600)  # the mode that the file is made with
                found.bind(place)
                found.listen(_MOST_CONNECTIONS)
        except BaseException as cause:
            found.close()
            if isinstance(cause, OSError) and not isinstance(cause, errors.Error):
                raise errors.from_errno(cause, doing, remedy="name another path") from cause
            raise
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(control.BEAT_S)  # no descriptor is free, say
                continue
            connection.settimeout(_SEND_S)
            if not self._free.acquire(blocking=False):
                busy = errors.PolicyRefusedError(
                    f"ask the engine: {_MOST_CONNECTIONS} others are asking it", remedy="ask again later"
                )
                _refuse(connection, busy)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="coldsnap-asked", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                control.require_same_user(connection, "ask the engine")
                request = _request_of(_line(connection))
            except errors.Error as refusal:
                _refuse(connection, refusal)
            except OSError:
                pass  # gone before it had asked
            else:
                self._do(connection, request)
            finally:
                self._free.release()

    def _do(self, connection: socket.socket, request: dict[str, Any]) -> None:
        job = _Job(self._answer, request)
        while not job.done.wait(control.BEAT_S):
            if not _send(connection, {"event": "progress", "done_bytes": job.at[0], "total_bytes": job.at[1]}):
                return  # nobody listens any more, and the work goes on
        _send(connection, job.said)


class _Job:
    """One request that is being worked on. ``at`` is how far it is, ``said`` what came of it once it is ``done``."""

    def __init__(self, answer: Answer, request: dict[str, Any]) -> None:
        self.at = (0, 0)
        self.said: dict[str, Any] = {}
        self.done = threading.Event()
        self._answer, self._request = answer, request
        threading.Thread(target=self._run, name=f"coldsnap-{request['operation']}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.said = {"ok": True, **self._answer(self._request, self._tell)}
        except BaseException as failure:
            self.said = _refused(failure)
        finally:
            self.done.set()

    def _tell(self, done: int, total: int) -> None:
        self.at = (done, total)


def _refused(failure: BaseException) -> dict[str, Any]:
    receipt = getattr(failure, "receipt", None)
    return {
        "ok": False,
        "error": receipts.error_entry(failure),
        "receipt": None if receipt is None else receipt.as_dict(),
    }


def _refuse(connection: socket.socket, refusal: errors.Error) -> None:
    """Say it and end; what is closed with unread bytes would take the refusal along, so those are read for a moment."""
    with connection, contextlib.suppress(OSError):
        _send(connection, _refused(refusal))
        connection.shutdown(socket.SHUT_WR)
        end = time.monotonic() + _LINGER_S
        while (left_s := end - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not connection.recv(MAX_REQUEST_BYTES):
                return


def _remove_left(place: str, doing: str) -> None:
    """Remove a socket at which nobody listens; refuse anything else that is there."""
    try:
        mode = os.lstat(place).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise errors.PolicyRefusedError(f"{doing}: something else is there", remedy="name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_SEND_S)
        try:
            probe.connect(place)
        except ConnectionRefusedError:
            os.unlink(place)
            return
    raise errors.PolicyRefusedError(f"{doing}: another engine listens there", remedy="give each engine its own path")


def _line(connection: socket.socket) -> bytes:
    """One line, and nothing behind it."""
    found, end = bytearray(), time.monotonic() + _REQUEST_S
    while not found.endswith(b"\n"):
        left_s = end - time.monotonic()
        connection.settimeout(max(left_s, 1e-3))
        try:
            piece = connection.recv(MAX_REQUEST_BYTES + 1 - len(found)) if left_s > 0 else b""
        except TimeoutError:
            piece = b""
        found += piece
        if not piece or len(found) > MAX_REQUEST_BYTES:
            why = (
                f"it has more than {MAX_REQUEST_BYTES} bytes" if piece else f"no whole line came in {_REQUEST_S:.0f} s"
            )
            raise errors.RequestInvalidError(f"read what is asked: {why}", remedy="send one line of JSON")
    connection.settimeout(_SEND_S)
    return bytes(found)


def _request_of(line: bytes) -> dict[str, Any]:
    try:
        if b"\n" in line[:-1]:
            raise ValueError("there is more than one line")
        operation = records.load(line, _operation)
        request: dict[str, Any] = records.load(line, _SCHEMAS[operation])
    except (ValueError, RecursionError) as cause:
        raise errors.RequestInvalidError(
            f"read what is asked: {cause}", remedy='ask {"format": 1, "operation": "status"}, say'
        ) from cause
    return request


def _operation(value: Any, where: str) -> str:
    operation = value.get("operation") if isinstance(value, dict) else None
    if not isinstance(operation, str) or operation not in _SCHEMAS:
        raise ValueError(f"{where}.operation is none of {', '.join(_SCHEMAS)}")
    return operation


def _send(connection: socket.socket, document: dict[str, Any]) -> bool:
    """Send a line; whether it went."""
    try:
        connection.sendall(line_of(document))
    except OSError:
        return False
    return True
