"""The parts of `coldsnap.hydrate` that need no artifact: streams, claims on memory, wrong arguments."""

from types import SimpleNamespace
from typing import Any

import pytest

import coldsnap
from coldsnap import errors
from coldsnap.restore import _stream_handles, claimed


def test_two_restores_cannot_have_the_same_memory() -> None:
    with claimed("host", [(0, 1000, 100), (1, 3000, 100)]):
        refused = pytest.raises(errors.PolicyRefusedError, match="another restore is running")
        with refused, claimed("host", [(7, 3099, 1)]):
            pass
        with claimed("host", [(7, 3100, 1)]), claimed("cuda:0", [(7, 3099, 1)]):
            pass
    with claimed("host", [(7, 3099, 1)]):
        pass


def test_a_claim_of_nothing_ends_only_itself() -> None:
    with claimed("host", []):
        with claimed("host", []):
            pass
        with claimed("host", [(0, 10, 10)]):
            pass


def test_streams_are_numbers_or_have_one() -> None:
    assert _stream_handles((0, SimpleNamespace(cuda_stream=7)), "cuda:0") == [0, 7]


@pytest.mark.parametrize("streams", [None, 7, "7", b"7", {7}, [None], [-1], [1 << 64], [True], ["7"], [object()]])
def test_what_is_no_stream_is_refused(streams: Any) -> None:
    with pytest.raises(errors.RequestInvalidError, match="stream"):
        _stream_handles(streams, "cuda:0")


def test_streams_do_not_order_host_memory() -> None:
    assert _stream_handles((), "host") == []
    with pytest.raises(errors.RequestInvalidError, match="host memory"):
        _stream_handles((7,), "host")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"backend": "rocket"}, "backend"),
        ({"backend": 7}, "backend"),
        ({"verify": "md5"}, "verify"),
        ({"place": "moon"}, "place"),
        ({"chunk_bytes": 4095}, "chunk_bytes"),
        ({"chunk_bytes": "4MB"}, "chunk_bytes"),
        ({"queue_depth": 0}, "queue_depth"),
        ({"read_threads": 0}, "read_threads"),
        ({"partial": 1}, "partial"),
        ({"progress": 7}, "progress"),
        ({"cancel": True}, "cancel"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_opened(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=name) as caught:
        coldsnap.hydrate("no/such/artifact", {}, **arguments)
    receipt = caught.value.receipt
    assert receipt is not None
    assert not receipt.ok
    assert receipt.error is not None
    assert receipt.error["code"] == "request_invalid"


@pytest.mark.parametrize("path", [None, 7, b"path", "", "nul\0", ["path"]])
def test_a_wrong_path_is_refused(path: Any) -> None:
    for call in (lambda: coldsnap.hydrate(path, {}), lambda: coldsnap.open(path)):
        with pytest.raises(coldsnap.RequestInvalidError, match="open an artifact"):
            call()


def test_a_wrong_shard_is_refused() -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match="shard is a int"):
        coldsnap.open("path", shard=0)  # type: ignore[arg-type]
