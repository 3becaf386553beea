"""The control socket: who may ask, what is answered, and clients that mean no good or none at all."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coldsnap import control, errors
from coldsnap.adapters import control_server
from coldsnap.adapters.control_server import ControlServer

STATUS = {"operation": "status"}


def answer(request: dict[str, Any], tell: Callable[[int, int], object]) -> dict[str, Any]:
    tell(1, 2)
    return {"report": {"asked": request["operation"]}, "receipt": None}


@pytest.fixture(autouse=True)
def _near(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address has room for 107 bytes, and the folder of a test may have a longer path."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "ours" / "control")


@contextlib.contextmanager
def serving(path: str, answer: control_server.Answer = answer) -> Iterator[ControlServer]:
    server = ControlServer(path, answer)
    try:
        yield server
    finally:
        server.close()


def raw(path: str, data: bytes) -> list[dict[str, Any]]:
    """Send bytes; what comes back until the end."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(os.path.relpath(path))
        client.sendall(data)
        with client.makefile("rb") as lines:
            return [json.loads(line) for line in lines]


def test_it_answers_and_is_this_user_s_alone(path: str) -> None:
    with serving(path):
        assert control.ask(path, STATUS) == ({"asked": "status"}, None)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert not os.path.exists(path)
    with pytest.raises(errors.RequestInvalidError, match="no engine listens there"):
        control.ask(path, STATUS)


def test_a_path_of_any_length(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / ("x" * 200) / "control")
    with serving(path):
        assert control.ask(path, STATUS)[0] == {"asked": "status"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"status\n", "Expecting value"),
        (b"\xff\n", "can't decode"),
        (b"[]\n", "is none of status, capture"),
        (b'{"format":1,"operation":"erase"}\n', "is none of status, capture"),
        (b'{"format":1,"operation":["status"]}\n', "is none of status, capture"),
        (b'{"format":2,"operation":"status"}\n', "$.format is 2"),
        (b'{"format":1,"operation":"status","operation":"status"}\n', "a key stands twice"),
        (b'{"format":1,"operation":"status","more":1}\n', "unknown key 'more'"),
        (b'{"format":1,"operation":"capture"}\n', "has no 'store'"),
        (b'{"format":1,"operation":"capture","store":"relative"}\n', "$.store"),
        (b'{"format":1,"operation":"capture","store":"/a\\u0000b"}\n', "$.store"),
        (b"[" * 10_000 + b"\n", "nested too deeply"),
        (b'{"format":1,"operation":"status"}\n\n', "more than one line"),
        (b" " * (control.MAX_REQUEST_BYTES + 1), "more than 16384 bytes"),
        (b"x" * (control.MAX_REQUEST_BYTES * 8), "more than 16384 bytes"),
    ],
)
def test_what_is_no_request_is_refused_in_a_sentence(path: str, data: bytes, words: str) -> None:
    with serving(path, lambda request, tell: pytest.fail("it was done")):
        (refusal,) = raw(path, data)
    assert refusal["ok"] is False
    assert refusal["error"]["code"] == "request_invalid"
    assert words in refusal["error"]["message"]


def test_a_slow_client_is_not_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "_REQUEST_S", 0.05)
    with serving(path):
        (refusal,) = raw(path, b'{"format":1,')
        assert "no whole line came" in refusal["error"]["message"]
        monkeypatch.setattr(control_server, "_REQUEST_S", 5.0)
        assert control.ask(path, STATUS)[0] == {"asked": "status"}


def test_more_clients_than_it_has_time_for(path: str) -> None:
    held = []
    with serving(path):
        for _ in range(4):
            client = socket.socket(socket.AF_UNIX)
            client.connect(os.path.relpath(path))
            held.append(client)
        (refusal,) = raw(path, b"")
        assert refusal["error"]["code"] == "policy_refused"
        assert "4 others are asking" in refusal["error"]["message"]
        for client in held:
            client.close()


def test_what_was_asked_goes_on_where_the_client_is_gone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "BEAT_S", 0.01)
    begun, go_on, finished = threading.Event(), threading.Event(), threading.Event()

    def slow(request: dict[str, Any], tell: Callable[[int, int], object]) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(30)
        finished.set()
        return {"report": None, "receipt": None}

    with serving(path, slow):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.path.relpath(path))
            client.sendall(control.line_of(STATUS))
            assert begun.wait(30)
        go_on.set()
        assert finished.wait(30)


def test_progress_and_a_failure_reach_the_client(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "BEAT_S", 0.01)
    seen: list[tuple[int, int]] = []
    heard = threading.Event()

    def failing(request: dict[str, Any], tell: Callable[[int, int], object]) -> dict[str, Any]:
        tell(3, 4)
        assert heard.wait(30)
        raise errors.ExistsError("capture: it is there", stage="capture", remedy="use it")

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if (done, total) == (3, 4):
            heard.set()

    with serving(path, failing), pytest.raises(errors.ExistsError) as refusal:
        control.ask(path, STATUS, progress)
    assert (refusal.value.message, refusal.value.stage, refusal.value.remedy) == (
        "capture: it is there",
        "capture",
        "use it",
    )
    assert (3, 4) in seen


def test_another_user_is_refused_by_either_side(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path):
        monkeypatch.setattr(control, "_PEER", _Peer(os.geteuid() + 1))
        (refusal,) = raw(path, control.line_of(STATUS))
        assert refusal["error"]["code"] == "policy_refused"
        assert f"is user {os.geteuid() + 1}" in refusal["error"]["message"]
        if os.geteuid() != 0:
            with pytest.raises(errors.PolicyRefusedError, match="the process at the other end"):
                control.ask(path, STATUS)
        monkeypatch.setattr(control, "_PEER", _Peer(0))
        assert raw(path, control.line_of(STATUS))[-1]["ok"] is True


class _Peer:
    """What the kernel says, with another user in it."""

    size = struct.calcsize("3i")

    def __init__(self, user: int) -> None:
        self._user = user

    def unpack(self, data: bytes) -> tuple[int, int, int]:
        pid, _, group = struct.unpack("3i", data)
        return pid, self._user, group


def test_a_dead_engine_s_socket_is_replaced_and_nothing_else_is(path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(os.path.relpath(path))
    left.close()
    with serving(path):
        assert control.ask(path, STATUS)[0] == {"asked": "status"}
        with pytest.raises(errors.PolicyRefusedError, match="another engine listens there"):
            ControlServer(path, answer)
    pathlib.Path(path).write_text("a file")
    with pytest.raises(errors.PolicyRefusedError, match="something else is there"):
        ControlServer(path, answer)
    assert pathlib.Path(path).read_text() == "a file"
    with pytest.raises(errors.RequestInvalidError, match="no engine listens there"):
        control.ask(path, STATUS)


def test_a_folder_that_others_may_write_to_is_refused(path: str) -> None:
    os.mkdir(os.path.dirname(path))
    os.chmod(os.path.dirname(path), 0o777)
    with pytest.raises(errors.PolicyRefusedError, match="others may write to it"):
        ControlServer(path, answer)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON\n",
        b"[]\n",
        b'{"format":2,"ok":true,"report":null,"receipt":null}\n',
        b'{"format":1,"ok":true}\n',
        b'{"format":1,"ok":true,"report":null,"receipt":{}}\n',
        b'{"format":1}\n',
    ],
)
def test_what_is_no_answer_is_no_success(tmp_path: pathlib.Path, data: bytes) -> None:
    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.path.relpath(path))
        other.listen()

        def say() -> None:
            connection, _ = other.accept()
            connection.recv(1 << 16)
            connection.sendall(data)
            connection.close()

        thread = threading.Thread(target=say)
        thread.start()
        with pytest.raises(errors.IoError):
            control.ask(path, STATUS)
        thread.join()
