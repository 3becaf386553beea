"""A client of the OpenAI-compatible server: when it is ready, and when the first token of an answer comes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

now_s = time.monotonic  # of every moment here
MODEL = "model"  # what the server calls it, whatever its folder
_POLL_S = 0.02
_PROBE_LIMIT_S = 2.0


class Streamed(NamedTuple):
    """One answer: the moment of its request and of its first token (monotonic clock, seconds), and its tokens."""

    asked_s: float
    first_s: float
    ids: list[int]


def await_health(port: int, alive: Callable[[], bool], until_s: float) -> float | None:
    """Ask ``/health`` until it answers 200.

    Args:
        port: On 127.0.0.1. vLLM binds it early and listens late, so that probes are refused until it is ready.
        alive: Whether there still is somebody to wait for.
        until_s: On the monotonic clock.
    Returns:
        The moment of the answer on the monotonic clock; None where it never came.
    """
    while alive() and now_s() < until_s:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE_LIMIT_S)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == http.client.OK:
                return now_s()
        except (OSError, http.client.HTTPException):
            pass  # nobody listens yet
        finally:
            connection.close()
        time.sleep(_POLL_S)
    return None


def complete(port: int, prompt: Sequence[int], tokens: int, limit_s: float) -> Streamed:
    """Have a prompt continued greedily, as a stream.

    Raises:
        OSError: The server refused, broke off, gave no token, or took longer than `limit_s` for a piece.
    """
    asked = {
        "ignore_eos": True,
        "max_tokens": tokens,
        "model": MODEL,
        "prompt": list(prompt),
        "return_token_ids": True,
        "stream": True,
        "temperature": 0,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        begin = now_s()
        connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise OSError(f"the server answered {response.status}: {response.read(300).decode(errors='replace')}")
        first_s, ids = read_answer(response, now_s)
    except http.client.HTTPException as error:
        raise OSError(f"read the answer: {type(error).__name__} {error}") from error
    finally:
        connection.close()
    return Streamed(begin, first_s, ids)


def read_answer(lines: Iterable[bytes], clock: Callable[[], float]) -> tuple[float, list[int]]:
    """Read a streamed completion to its end.

    Returns:
        The moment of the first event that has a token, and the ids of all.
    Raises:
        OSError: An event reports an error, or no event had a token.
    """
    first_s, ids = None, []
    for data in events(lines):
        if data == "[DONE]":
            break
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise OSError(f"read the answer: {event['error']}")
        for choice in event.get("choices", ()):
            found = choice.get("token_ids") or []
            # A token may be half a character, whose text is empty; an event without a token has neither.
            if first_s is None and (found or choice.get("text")):
                first_s = clock()
            ids += found
    if first_s is None:
        raise OSError("read the answer: it ended before its first token")
    return first_s, ids


def events(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of server-sent events, each when the empty line behind it has come; comments and other fields are none."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
