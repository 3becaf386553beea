"""Server-sent events, the first token in them, and a server that is not one."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator

import pytest

from bench.startup import client
from bench.startup.client import await_health, complete, events, read_answer

# In the form that vLLM 0.32 gives its events; the first token of the three has no text.
STREAM = """\
data: {"id":"cmpl-1","created":1764484094,"model":"model","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2,3],"token_ids":[446]}]}

data: {"id":"cmpl-1","created":1764484094,"model":"model","choices":[{"index":0,"text":"ä","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[228]}]}

data: {"id":"cmpl-1","created":1764484094,"model":"model","choices":[{"index":0,"text":"<229>","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":[229]}]}

data: [DONE]

""".encode()
# As a vLLM 0.32 on a CPU streamed it when its worker had died.
FAILED = b"""\
data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}

data: [DONE]

"""


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def told(*choices: dict[str, object]) -> list[bytes]:
    return lines(b"".join(f"data: {json.dumps({'choices': [choice]})}\n\n".encode() for choice in choices))


def test_a_stream_of_an_answer() -> None:
    assert read_answer(lines(STREAM), iter([7.0]).__next__) == (7.0, [446, 228, 229])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\n", ["a"]),
        (b": a comment\n\nevent: x\ndata: a\nid: 1\ndata: b\n\n", ["a\nb"]),
        (b"data: \xc3\xa4\n\n", ["ä"]),
        (b"data: cut off\n", []),
        (b"", []),
    ],
)
def test_events(text: bytes, found: list[str]) -> None:
    assert list(events(lines(text))) == found


def test_the_first_event_with_a_token_stops_the_clock() -> None:
    asked: list[int] = []

    def stream() -> Iterator[bytes]:
        # A role, an empty beginning, half a character, and a text without ids, as servers without that option give it.
        for number, choice in enumerate([{"text": ""}, {"text": "", "token_ids": []}, {"text": "", "token_ids": [5]}]):
            asked.append(number)
            yield from told(choice)

    assert read_answer(stream(), lambda: float(asked[-1])) == (2.0, [5])
    assert read_answer(told({"text": ""}, {"text": "x"}), lambda: 3.0) == (3.0, [])


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (told({"text": ""}), "it ended before its first token"),
        ([], "it ended before its first token"),
        (
            lines(b'data: {"error": {"message": "EngineCore encountered an issue"}}\n\n'),
            "EngineCore encountered an issue",
        ),
    ],
)
def test_streams_without_an_answer(stream: list[bytes], says: str) -> None:
    with pytest.raises(OSError, match=says):
        read_answer(stream, lambda: 1.0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Not ready at first, and never able to answer."""

    asked = 0

    def do_GET(self) -> None:
        Handler.asked += 1
        self.send_response(503 if Handler.asked < 3 else 200)
        self.end_headers()

    def do_POST(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"The model `model` does not exist.")

    def log_message(self, *_: object) -> None:
        """Keep still."""


def test_health_is_waited_for_and_refusals_are_told() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert await_health(server.server_port, lambda: True, time.monotonic() + 60) is not None
            assert Handler.asked == 3
            with pytest.raises(OSError, match="the server answered 404: The model `model` does not exist"):
                complete(server.server_port, [1], 1, 60.0)
        finally:
            server.shutdown()
            thread.join()


class Streaming(http.server.BaseHTTPRequestHandler):
    """Streams in chunks, and goes on only when somebody has seen the first token."""

    protocol_version = "HTTP/1.1"
    seen = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(b"".join(told({"text": "", "token_ids": [5]})))
        rest = told({"text": "", "token_ids": [6]}) if self.seen.wait(30) else [b'data: {"error": "unseen"}\n\n']
        self.chunk(b"".join(rest))
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Keep still."""


def test_the_clock_stops_while_the_rest_is_still_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look() -> float:
        looks.append(float(len(looks)))
        if len(looks) == 2:  # the first look is the request's
            Streaming.seen.set()
        return looks[-1]

    with http.server.HTTPServer(("127.0.0.1", 0), Streaming) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setattr(client, "now_s", look)
        found = complete(server.server_port, [1], 2, 60.0)
        thread.join()
    assert found == (0.0, 1.0, [5, 6])


def test_health_is_not_waited_for_in_vain() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False) as server:
        server.server_bind()  # as vLLM does early: bound, and nobody listens
        port = server.server_port
        alive = iter([True, True, False])
        assert await_health(port, alive.__next__, time.monotonic() + 60) is None
        assert next(alive, "asked to the end") == "asked to the end"
        assert await_health(port, lambda: True, 0.0) is None
