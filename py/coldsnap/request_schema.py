"""What a request may say: one table, from which both the strict reader and the JSON Schema are made.

A request is one JSON object in UTF-8. What is not exactly right is refused with the place where it stands, written as
JSONPath (RFC 9535) writes it. Numbers keep to what every JSON library holds exactly, strings to Unicode text.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from coldsnap import errors, receipts, records, settings

FORMAT = 1
MAX_BYTES = 1 << 20
MAX_DEPTH = 32
_EXACT = (1 << 53) - 1  # what a double holds, and so every JSON library
_MAX_PATH = 4096  # PATH_MAX of Linux
_MAX_FILES = 4096
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Kind(NamedTuple):
    """What a value may be: ``check`` for the reader, ``schema`` for the JSON Schema of the same rule."""

    check: records.Check
    schema: dict[str, Any]


class Field(NamedTuple):
    """One key of an object."""

    name: str
    kind: Kind
    help: str
    required: bool = False


class Rules(NamedTuple):
    """What holds between keys.

    Attributes:
        one_of: Exactly one of these is there.
        any_of: One of these is there, or several.
        excludes: A key, and those that can't stand beside it.
        within: A key and one inside it: where that is there, `alone` may not stand beside it, and `any_of` is not asked.
        alone: See ``within``.
    """

    one_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    excludes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    within: tuple[str, str] = ("", "")
    alone: tuple[str, ...] = ()


_NO_RULES = Rules()


class Operation(NamedTuple):
    """One operation and the keys that it takes beside ``format`` and ``operation``."""

    name: str
    help: str
    fields: tuple[Field, ...]
    rules: Rules = _NO_RULES


class Request(NamedTuple):
    """A request that keeps the rules: its operation, and the values that it gave."""

    operation: str
    values: dict[str, Any]


def whole(least: int, most: int, multiple_of: int = 1) -> Kind:
    """A whole number within bounds."""
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return Kind(
        records.whole(least, most, multiple_of), schema | ({"multipleOf": multiple_of} if multiple_of > 1 else {})
    )


def one_of(*known: str) -> Kind:
    """One of these words."""

    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{where} is {_show(value)} and not one of {', '.join(known)}")
        return value

    return Kind(check, {"enum": list(known)})


def matching(pattern: str, what: str) -> Kind:
    """A string that ``pattern`` matches from end to end; ``what`` says which those are."""

    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(f"{where} is {_show(value)} and not {what}")
        return value

    return Kind(check, {"type": "string", "pattern": f"^(?:{pattern})$"})


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{where} is {_show(value)} and not true or false")
    return value


def _path(value: Any, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_PATH or "\0" in value:
        raise ValueError(f"{where} is {_show(value)} and not a path of 1 to {_MAX_PATH} characters without NUL")
    return value


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {_show(value)} and not an object")
    return value


FLAG = Kind(_flag, {"type": "boolean"})
PATH = Kind(_path, {"type": "string", "minLength": 1, "maxLength": _MAX_PATH, "pattern": "^[^\\u0000]*$"})
MAPPING = Kind(_mapping, {"type": "object"})


def several(each: Kind, most: int) -> Kind:
    """An array of 1 to ``most`` values of one kind."""

    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or not 0 < len(value) <= most:
            raise ValueError(f"{where} is {_show(value)} and not an array of 1 to {most} values")
        return [each.check(item, f"{where}[{index}]") for index, item in enumerate(value)]

    return Kind(check, {"type": "array", "items": each.schema, "minItems": 1, "maxItems": most})


def object_of(fields: Sequence[Field], rules: Rules = _NO_RULES) -> Kind:
    """An object with these keys and no others."""
    known = {field.name: field for field in fields}

    def check(value: Any, where: str) -> dict[str, Any]:
        found = _mapping(value, where)
        for name in (name for name in found if name not in known):
            raise ValueError(f"{_below(where, name)} is not known{_hint(name, list(known))}")
        for field in fields:
            if field.required and field.name not in found:
                raise ValueError(f"{where} has no {field.name!r}")
        _check_rules(found, rules, where)
        return {name: known[name].kind.check(item, _below(where, name)) for name, item in found.items()}

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: field.kind.schema | {"description": field.help} for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }
    if rules.one_of:
        schema["oneOf"] = [{"required": [name]} for name in rules.one_of]
    any_of = [{"required": [name]} for name in rules.any_of]
    if rules.alone:
        outer, inner = rules.within
        schema["if"] = {"properties": {outer: {"type": "object", "required": [inner]}}}
        schema["then"] = {"properties": {name: False for name in rules.alone}}
        schema["else"] = {"anyOf": any_of}
    elif any_of:
        schema["anyOf"] = any_of
    if rules.excludes:
        schema["dependentSchemas"] = {
            name: {"properties": {other: False for other in others}} for name, others in rules.excludes
        }
    return Kind(check, schema)


_SOURCE = object_of(
    (
        Field("safetensors", several(PATH, _MAX_FILES), "safetensors files, all of whose tensors are captured"),
        Field("numpy", PATH, "a .npz file, or a .npy file, whose tensor is named after the file"),
        Field("control", PATH, "the control socket of a running engine, whose weights are captured"),
    ),
    Rules(one_of=("safetensors", "numpy", "control")),
)
_DEVICE = matching(r"host|cuda:\d{1,3}", "host or cuda:N")
_COUNT = (1, settings.MAX_READ_THREADS)
_SHARD = matching(r"shard-\d{2,10}-\d{2,10}-\d{2,10}", "a shard's name, such as shard-00-00-00")
_CHUNK = whole(settings.LEAF_BYTES, _EXACT // settings.LEAF_BYTES * settings.LEAF_BYTES, settings.LEAF_BYTES)
_ARTIFACT = Field("path", PATH, "the artifact's folder, the one with artifact.json", required=True)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "capabilities",
        "what works on this machine, and why the rest does not",
        (Field("path", PATH, "a folder, whose drive is tried too"),),
    ),
    Operation(
        "inspect",
        "what an artifact holds, from its description",
        (_ARTIFACT, Field("shard", _SHARD, "which shard; may be left out when there is only one")),
    ),
    Operation(
        "verify",
        "read a whole artifact and compare every digest",
        (_ARTIFACT, Field("admit", FLAG, "then write trust markers for this machine")),
    ),
    Operation(
        "calibrate",
        "measure this machine and how close restores come to it",
        (
            Field("bytes", whole(1, _EXACT), "payload of the blob, in bytes"),
            Field("extents", whole(1, 1_000_000), "that many extents of one size"),
            Field("chunk_bytes", _CHUNK, "bytes per slot"),
            Field("queue_depth", whole(1, settings.MAX_QUEUE_DEPTH), "slots in flight"),
            Field("path", PATH, "folder on the drive to measure"),
            Field("device", matching(r"auto|host|cuda:\d{1,3}", "auto, host or cuda:N"), "where restores go"),
            Field("cache", several(one_of("cold", "warm", "half"), 3), "states of the page cache to measure"),
            Field("operations", several(one_of("hydrate", "capture"), 2), "what to measure"),
            Field("sweep", FLAG, "also a grid of chunk, depth, threads and digest"),
            Field("minutes", whole(1, 1440), "end by then; what is left goes into a search"),
            Field("output", PATH, "folder for results.json"),
            Field("resume", FLAG, "go on with an interrupted one in output"),
            Field("compare", PATH, "an earlier results.json to compare with"),
            Field("fail_if_slower", FLAG, "fail with policy_refused if a case is slower"),
            Field("samples", whole(1, 1000), "samples of each number"),
            Field("seed", whole(0, _EXACT), "seed of the random bytes"),
        ),
    ),
    Operation(
        "capture",
        "write tensors from files, or the weights of a running engine, as an artifact",
        (
            Field("source", _SOURCE, "where the tensors are", required=True),
            Field("path", PATH, "the artifact's folder, which must not be there"),
            Field("store", PATH, "the store's folder; without path and store COLDSNAP_STORE, else the default store"),
            Field("identity", MAPPING, "what the tensors are"),
            Field("scalars", MAPPING, "values to keep beside the tensors"),
            Field("backend", one_of(*settings.CAPTURE_BACKENDS), "who writes, and by which route"),
            Field("place", one_of(*settings.PLACES), "where digests are computed"),
            Field("preverified", FLAG, "read the durable blob again, and write a trust marker"),
            Field("replace", FLAG, "in a store, whether another artifact of the identity may be replaced"),
        ),
        Rules(
            any_of=("path", "identity"),
            excludes=(("path", ("store", "replace")),),
            within=("source", "control"),
            alone=("path", "identity", "scalars", "backend", "place", "preverified", "replace"),
        ),
    ),
    Operation(
        "hydrate",
        "restore an artifact into memory of its own, to test it or to write its tensors as a file",
        (
            _ARTIFACT,
            Field("shard", _SHARD, "which shard; may be left out when there is only one"),
            Field("device", _DEVICE, "where to restore to; host by default"),
            Field("backend", one_of(*settings.BACKENDS), "who moves the bytes, and by which route"),
            Field("verify", one_of(*settings.VERIFY_MODES), "the digests compared"),
            Field("place", one_of(*settings.PLACES), "where digests are computed"),
            Field("chunk_bytes", _CHUNK, "bytes of one read and of one ring slot"),
            Field("queue_depth", whole(1, settings.MAX_QUEUE_DEPTH), "ring slots in flight"),
            Field("read_threads", whole(*_COUNT), "concurrent reads"),
            Field("output", PATH, "a safetensors file to write the tensors to, which must not be there"),
        ),
    ),
    Operation(
        "qualify",
        "start an engine from an artifact, and compare its answers with those that are known",
        (
            Field("engine", one_of("vllm"), "which engine", required=True),
            Field("arguments", MAPPING, "of the engine, without a load format", required=True),
            Field("artifact", PATH, "the artifact's folder; without it the one that the engine finds in the store"),
            Field("store", PATH, "the store's folder; without it as at the engine's own start"),
            Field("timeout_s", whole(1, 86_400), "most seconds that one start may take; 1800 by default"),
        ),
        Rules(excludes=(("artifact", ("store",)),)),
    ),
    Operation(
        "status",
        "the last receipts and what the state folder has, or what a running engine says of itself",
        (
            Field("receipts", whole(0, 100), "how many receipts, newest first; 5 by default"),
            Field("control", PATH, "the control socket of a running engine, which is asked instead"),
        ),
        Rules(excludes=(("control", ("receipts",)),)),
    ),
)
NOT_YET = ("launch", "release")  # of the contract; this version has no part that could do them
_BY_NAME = {operation.name: operation for operation in OPERATIONS}
_NAMES = one_of(*_BY_NAME)


def parse(data: bytes) -> Request:
    """Read one request.

    Args:
        data: The document, at most `MAX_BYTES`.
    Raises:
        RequestInvalidError: It is no JSON in UTF-8, or breaks a rule; the message has the place and the reason. Its
            ``receipt`` names the operation that was asked for, or ``request`` where that is not known.
    """
    operation = "request"
    try:
        document = _mapping(_decoded(data), "$")
        for name in ("format", "operation"):
            if name not in document:
                raise ValueError(f"$ has no {name!r}")
        records.whole(FORMAT, FORMAT)(document["format"], "$.format")
        if document["operation"] in NOT_YET:
            operation = document["operation"]
            raise ValueError(f"$.operation is {operation!r}, which this version has not got")
        operation = _NAMES.check(document["operation"], "$.operation")
        values = kind_of(_BY_NAME[operation]).check(document, "$")
    except ValueError as cause:
        error = errors.RequestInvalidError(f"read the request: {cause}", remedy="coldsnap schema prints the rules")
        error.receipt = receipts.Account(operation).receipt(error)
        raise error from cause
    return Request(operation, {name: item for name, item in values.items() if name not in ("format", "operation")})


def request_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a request."""
    kinds = [kind_of(operation).schema | {"description": operation.help} for operation in OPERATIONS]
    return {"type": "object", "oneOf": kinds}


def kind_of(operation: Operation) -> Kind:
    """What a request of the operation may be, as a whole."""
    head = (
        Field("format", whole(FORMAT, FORMAT), "version of requests and receipts", required=True),
        Field("operation", one_of(operation.name), "what to do", required=True),
    )
    return object_of((*head, *operation.fields), operation.rules)


def _check_rules(found: dict[str, Any], rules: Rules, where: str) -> None:
    given = [name for name in rules.one_of if name in found]
    if rules.one_of and len(given) != 1:
        which = " and ".join(given) if given else "none"
        raise ValueError(f"{where} has {which} of {', '.join(rules.one_of)}, and takes exactly one")
    outer, inner = rules.within
    within = isinstance(found.get(outer), dict) and inner in found[outer]
    if rules.any_of and not within and not found.keys() & set(rules.any_of):
        raise ValueError(f"{where} has none of {', '.join(rules.any_of)}, and takes at least one")
    for other in rules.alone if within else ():
        if other in found:
            raise ValueError(f"{_below(where, other)} can't stand beside {inner!r} in {_below(where, outer)}")
    for name, others in rules.excludes:
        for other in others:
            if name in found and other in found:
                raise ValueError(f"{_below(where, other)} can't stand beside {name!r}")


class _Twice(dict[str, Any]):
    """An object in which ``name`` stands twice; `_refuse_what_json_should_not_hold` says where."""

    name = ""


def _decoded(data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise ValueError(f"byte {cause.start} is no UTF-8 ({cause.reason})") from None
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark, which JSON has not")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_int)
    except RecursionError:
        raise ValueError(f"$ is nested more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as cause:
        raise ValueError(f"it is no JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}") from None
    _refuse_what_json_should_not_hold(value, "$", 1)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = _Twice()
    seen: set[str] = set()
    twice.name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return twice


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _int(digits: str) -> int:
    # Python refuses more than 4300 digits, in words of its own; 32 are past every limit here.
    return int(digits[:32])


def _refuse_what_json_should_not_hold(value: Any, where: str, depth: int) -> None:
    if isinstance(value, str):
        _refuse_half_characters(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is a number that no double holds")
    elif isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        raise ValueError(f"{where} is a whole number past 2^53 - 1")
    if not isinstance(value, dict | list):
        return
    if depth > MAX_DEPTH:
        raise ValueError(f"{where[:80]} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, _Twice):
        raise ValueError(f"{_below(where, value.name)} stands twice")
    for place, item in _items(value, where):
        _refuse_what_json_should_not_hold(item, place, depth + 1)


def _items(value: dict[str, Any] | list[Any], where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((f"{where}[{index}]", item) for index, item in enumerate(value))
        return
    for name, item in value.items():
        _refuse_half_characters(name, f"a key of {where}")
        yield _below(where, name), item


def _refuse_half_characters(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} has half of a surrogate pair, which is no character") from None


def _below(where: str, name: str) -> str:
    """The place of a key: shortened where it is long, escaped where it is no plain name."""
    shown = name if len(name) <= 60 else name[:57] + "..."
    return f"{where}.{shown}" if _NAME.fullmatch(shown) else f"{where}[{json.dumps(shown)}]"


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:60], known, n=1)
    return f"; the nearest is {near[0]!r}" if near else f"; known here: {', '.join(known)}"


def _show(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else shown[:77] + "..."
