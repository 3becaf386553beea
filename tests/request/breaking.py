"""For every rule of the schema a request that breaks it: what corpus/refused.json is made of."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from typing import Any

from coldsnap import request_schema
from coldsnap.request_schema import MAX_DEPTH, OPERATIONS
from tests.request import validator

_PATHS = {"path": "artifact"}
# A request of each operation with every key that can stand beside the others.
WHOLE: dict[str, dict[str, Any]] = {
    "capabilities": _PATHS,
    "inspect": _PATHS | {"shard": "shard-00-00-00"},
    "verify": _PATHS | {"admit": True},
    "calibrate": {
        "bytes": 8388608,
        "extents": 1000,
        "chunk_bytes": 65536,
        "queue_depth": 2,
        "path": "drive",
        "device": "host",
        "cache": ["warm"],
        "operations": ["hydrate", "capture"],
        "sweep": False,
        "minutes": 10,
        "output": "results",
        "resume": False,
        "compare": "earlier.json",
        "fail_if_slower": True,
        "samples": 1,
        "seed": 7,
    },
    "capture": {
        "source": {"safetensors": ["model.safetensors"]},
        "store": "store",
        "identity": {"model": "example"},
        "scalars": {"step": 7},
        "backend": "python",
        "place": "host",
        "preverified": False,
        "replace": False,
    },
    "hydrate": _PATHS
    | {
        "shard": "shard-00-00-00",
        "device": "host",
        "backend": "python",
        "verify": "crc32+sha256",
        "place": "host",
        "chunk_bytes": 65536,
        "queue_depth": 2,
        "read_threads": 2,
        "output": "restored.safetensors",
    },
    "qualify": {
        "engine": "vllm",
        "arguments": {"model": "checkpoint"},
        "store": "store",
        "timeout_s": 60,
    },
    "status": {"receipts": 1},
}
_WRONG_TYPE = {"integer": "1", "string": 5, "boolean": 1, "object": [], "array": {}}
# What no schema says: the text itself, and operations of later versions.
TEXTS: dict[str, bytes] = {
    "no text": b"",
    "no JSON": b"format: 1",
    "more behind it": b'{"format":1,"operation":"status"} {}',
    "a comment": b'{"format":1,/* */"operation":"status"}',
    "no object": b"[]",
    "no UTF-8": b'{"format":1,"operation":"st\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"format":1,"operation":"status"}',
    "half of a character": b'{"format":1,"operation":"verify","path":"\\ud800"}',
    "half of a character in a key": b'{"format":1,"operation":"status","\\udfff":1}',
    "a key twice": b'{"format":1,"operation":"status","operation":"verify"}',
    "a key twice, further in": b'{"format":1,"operation":"capture","identity":{"a":{"b":1,"b":1}}}',
    "NaN": b'{"format":1,"operation":"status","receipts":NaN}',
    "infinity": b'{"format":1,"operation":"status","receipts":-Infinity}',
    "no double": b'{"format":1,"operation":"capture","identity":{"a":1e999}}',
    "past 2^53": b'{"format":1,"operation":"capture","identity":{"a":[9007199254740992]}}',
    "thousands of digits": b'{"format":1,"operation":"status","receipts":' + b"9" * 5000 + b"}",
    "too deep": b'{"format":1,"operation":"capture","identity":{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}}",
    "far too deep": b"[" * 5000,
    "a number with a point": b'{"format":1.0,"operation":"status"}',
    "another format": b'{"format":2,"operation":"status"}',
    "nothing asked for": b"{}",
    "another operation": b'{"format":1,"operation":"erase"}',
    "no name of an operation": b'{"format":1,"operation":["status"]}',
    "a misspelled key": b'{"format":1,"operation":"verify","path":"artifact","admin":true}',
    "a key that is no name": b'{"format":1,"operation":"status","a b":1}',
    "both places": b'{"format":1,"operation":"capture","source":{"numpy":"a.npy"},"path":"a","store":"b","identity":{}}',
    "both sources": b'{"format":1,"operation":"capture","source":{"numpy":"a","safetensors":["b"]},"path":"a"}',
    **{name: json.dumps({"format": 1, "operation": name}).encode() for name in request_schema.NOT_YET},
}


def every() -> Iterator[dict[str, str]]:
    """The entries of refused.json, without their messages."""
    for rule, text in TEXTS.items():
        try:
            yield {"rule": rule, "request": text.decode()}
        except UnicodeDecodeError:
            yield {"rule": rule, "request_base64": base64.b64encode(text).decode()}
    for operation in OPERATIONS:
        for where, keyword in rules_of(operation):
            request = broken_request(operation, where, keyword)
            rule = f"{operation.name}: {where} {keyword}"
            yield {"rule": rule, "request": json.dumps(request, separators=(",", ":"))}


def rules_of(operation: request_schema.Operation) -> list[validator.Broken]:
    """The rules that are the operation's own; what holds for all of them is in `TEXTS`."""
    common = ("$.format", "$.operation")
    found = validator.rules(request_schema.kind_of(operation).schema)
    return [rule for rule in found if rule != ("$", "type") and rule[0] not in common]


def whole_request(operation: str) -> dict[str, Any]:
    return {"format": 1, "operation": operation, **copy.deepcopy(WHOLE[operation])}


def broken_request(operation: request_schema.Operation, where: str, keyword: str) -> dict[str, Any]:
    """A request in which this rule is broken, and as few others as that takes."""
    request = whole_request(operation.name)
    if where.startswith("$.source.numpy"):
        request["source"] = {"numpy": "model.npz"}
    if where.startswith("$.source.control"):
        request = {name: request[name] for name in ("format", "operation", "store")} | {"source": {"control": "socket"}}
    if where == "$.path" and operation.name == "capture" and keyword != "false":
        del request["store"], request["replace"]
    if where == "$.artifact":
        del request["store"]
    if where == "$.control":
        del request["receipts"]
    schema, holder, key = request_schema.kind_of(operation).schema, request, ""
    for step in where.replace("[0]", ".0").split(".")[1:]:
        if key:
            holder = holder[key]  # type: ignore[index]
        key = 0 if step == "0" else step  # type: ignore[assignment]
        schema = schema["items"] if step == "0" else schema["properties"][step]
    target: Any = holder[key] if key != "" and key in (holder if isinstance(holder, dict) else (0,)) else request
    _break(holder, key, target, schema, keyword)
    return request


def _break(holder: Any, key: Any, target: Any, schema: dict[str, Any], keyword: str) -> None:
    if keyword == "additionalProperties":
        target["bogus"] = 1
    elif keyword == "oneOf":
        for each in schema["oneOf"]:
            target.pop(each["required"][0], None)
    elif keyword == "anyOf":
        del target["identity"]
    elif keyword == "required":
        del holder[key]
    elif keyword == "false":  # beside an artifact, a path or an engine
        _put_beside(holder, key)
    else:
        holder[key] = _value(schema, keyword)


def _put_beside(request: dict[str, Any], key: str) -> None:
    """Put beside ``key`` what it can't stand beside."""
    if request["operation"] in ("qualify", "status"):
        request["artifact" if key == "store" else "control"] = "new"
    elif key in ("store", "replace"):
        request["path"] = "artifact"
        if key != "store":
            del request["store"]
    else:
        request["source"] = {"control": "socket"}
        request.setdefault(key, "new")
        for name in request.keys() - {"format", "operation", "source", "store", key}:
            del request[name]


def _value(schema: dict[str, Any], keyword: str) -> Any:
    limit = schema.get(keyword)
    if keyword == "type":
        return _WRONG_TYPE[schema["type"]]
    if keyword in ("minimum", "maximum"):
        return limit - 1 if keyword == "minimum" else limit + 1
    if keyword == "multipleOf":
        return limit + 1
    if keyword == "maxItems":
        return [schema["items"].get("enum", ["f"])[0]] * (limit + 1)
    if keyword == "maxLength":
        return "x" * (limit + 1)
    if keyword == "pattern":
        return "a\0b" if "u0000" in limit else "other"
    return {"enum": "other", "minLength": "", "minItems": []}[keyword]
