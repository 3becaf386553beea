"""Thousands of damaged requests: each is read or refused in one sentence, and the schema says the same."""

from __future__ import annotations

import copy
import json
import pathlib
import random
from typing import Any

import pytest

from coldsnap import errors, operations, receipts, request_schema, requests
from tests import seeds
from tests.request import breaking, validator

SEED = seeds.chosen(20_260_704)
ROUNDS = 600  # of each way of damage, for each operation
SCHEMA = request_schema.request_schema()
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 65536, 1 << 53, 10**40, 1.5, "", "host", "cuda:0", "a\0b", "\u2028", "x" * 5000, [], ["cold"], {}, {"a": 1},
)  # fmt: skip
BYTES = b'{}[]",:0-9.eE+\\/ \x00\x7f\x80\xff\nutrfalsen'


def whole_requests() -> list[bytes]:
    return [json.dumps(breaking.whole_request(name)).encode() for name in breaking.WHOLE]


def test_damaged_bytes() -> None:
    rng, refused = random.Random(SEED), 0
    whole = whole_requests()
    for _ in range(ROUNDS):
        for data in whole:
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(damaged) + 1)
                cut, other = damaged[at : at + rng.randint(0, 6)], rng.choice(whole)
                begin = rng.randrange(len(other))
                damaged[at : at + len(cut)] = rng.choice(
                    (b"", bytes([rng.choice(BYTES)]), cut + cut, other[begin : begin + 8])
                )
            refused += not taken(bytes(damaged))
    assert refused > ROUNDS * len(whole) // 2  # else this damages too little


def test_damaged_documents() -> None:
    rng, refused, read = random.Random(SEED + 1), 0, 0
    for _ in range(ROUNDS):
        for name in breaking.WHOLE:
            document = breaking.whole_request(name)
            for _ in range(rng.randint(0, 2)):
                damage(document, rng)
            found = taken(json.dumps(document).encode())
            refused, read = refused + (not found), read + found
            if found:
                assert validator.broken(SCHEMA, document) == set(), document
            elif not past_what_json_holds(document):
                assert validator.broken(SCHEMA, document) != set(), document
    assert refused > ROUNDS
    assert read > ROUNDS


@pytest.mark.parametrize("nbytes", [request_schema.MAX_BYTES, request_schema.MAX_BYTES + 1])
def test_length(nbytes: int) -> None:
    data = b'{"format":1,"operation":"status"}'
    data += b" " * (nbytes - len(data))
    if nbytes == request_schema.MAX_BYTES:
        assert request_schema.parse(data) == ("status", {})
        return
    with pytest.raises(errors.RequestInvalidError, match="read the request: it has more than 1048576 bytes"):
        request_schema.parse(data)


@pytest.mark.parametrize("levels", [request_schema.MAX_DEPTH, request_schema.MAX_DEPTH + 1])
def test_depth(levels: int) -> None:
    inner = levels - 2  # below the document and the identity
    data = b'{"format":1,"operation":"capture","source":{"numpy":"a"},"path":"b","identity":{"a":%s}}'
    assert taken(data % (b"[" * inner + b"]" * inner)) is (levels == request_schema.MAX_DEPTH)


@pytest.mark.parametrize(
    "value", [b"[" * 500_000, b'{"a":' * 150_000, b"[[],[]," * 100_000, b'"' + b"\\u0041" * 99_999]
)
def test_large_nonsense(value: bytes) -> None:
    assert not taken(b'{"format":1,"operation":"capture","identity":' + value)


def test_damaged_bytes_have_one_receipt_each(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    nothing = operations.Outcome(receipts.Account("status").receipt(), None)
    monkeypatch.setattr(operations, "run", lambda request, progress: nothing)
    rng, path = random.Random(SEED + 2), tmp_path / "request.json"
    whole = [data for data in whole_requests() if b'"status"' in data or b'"inspect"' in data]
    for _ in range(200):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.randint(0, 2)):
            data[rng.randrange(len(data))] = rng.choice(BYTES)
        path.write_bytes(data)
        code = requests.main([str(path)])
        out = capfd.readouterr()
        assert out.out.count("\n") == 1
        assert json.loads(out.out)["ok"] is (code == 0)
        assert (code in (0, 2), out.err) == (True, "")


def taken(data: bytes) -> bool:
    """Whether the request is read; a refusal is one sentence that can be printed."""
    try:
        request_schema.parse(data)
    except errors.RequestInvalidError as refusal:
        assert refusal.message.startswith("read the request: ")
        assert "\n" not in refusal.message
        assert len(refusal.message.encode()) < 2000
        assert refusal.receipt is not None
        return False
    return True


def damage(document: dict[str, Any], rng: random.Random) -> None:
    """Change, drop or add one value somewhere."""
    holder: Any = document
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = rng.choice(keys)
        if not isinstance(holder[key], dict | list) or rng.random() < 0.5:
            break
        holder = holder[key]
    way = rng.random()
    if way < 0.3:
        del holder[key]
    elif way < 0.4 and isinstance(holder, dict):
        holder[rng.choice(("path", "store", "source", "bytes", "Path", "a b", "", "\u00e9"))] = copy.deepcopy(
            rng.choice(VALUES)
        )
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))


def past_what_json_holds(value: Any) -> bool:
    """What is refused although the schema has no rule for it: numbers that not every reader holds."""
    if isinstance(value, dict | list):
        return any(map(past_what_json_holds, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 1 << 53
