"""Identity and scalars as JSON that the format can hold: what Python has and canonical JSON has not becomes text."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap import errors
from coldsnap.artifact import load_native

_MOST = (1 << 53) - 1


def canonical(value: Any, what: str) -> str:
    """The canonical text of an object with string keys.

    Floats become their bits (``f64:3ff0000000000000``), whole numbers outside 0 to 2^53 - 1 decimal digits; tuples
    become arrays (docs/format.md, "Canonical JSON").

    Args:
        value: A mapping of str to None, bool, int, float, str, mappings and sequences of these; None stands for ``{}``.
        what: What messages call it.
    Raises:
        RequestInvalidError: It is none, or holds what the format has no text for; the message names the place.
    """
    if value is not None and not isinstance(value, Mapping):
        raise errors.RequestInvalidError(f"read {what}: it is a {type(value).__name__}", remedy="give a dict")
    text = json.dumps(encoded(value or {}, what), ensure_ascii=False)
    try:
        text.encode()
        found: str = load_native().canonical_object(text)
        return found
    except UnicodeEncodeError as cause:
        raise errors.RequestInvalidError(f"read {what}: a string is no UTF-8 ({cause.reason})") from cause
    except errors.RequestInvalidError as cause:
        raise errors.RequestInvalidError(f"read {what}: {cause.message}", remedy=cause.remedy) from cause


def encoded(value: Any, what: str) -> Any:
    """What the canonical text of a value says, to be compared with what was read from one.

    Raises:
        RequestInvalidError: It holds what the format has no text for; the message names the place.
    """
    return _encoded(value, what, 0)


def digest_of(canonical_json: str) -> str:
    """SHA-256 of a canonical text, in hex: of an identity it is the name of its folder in a store."""
    return hashlib.sha256(canonical_json.encode()).hexdigest()


def _encoded(value: Any, where: str, depth: int) -> Any:
    if depth > 64:  # the core refuses much less, in its words; this only keeps Python from overflowing
        raise errors.RequestInvalidError(f"read {where[:80]}: it is nested too deeply")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if 0 <= value <= _MOST else str(value)
    if isinstance(value, float):
        return "f64:" + struct.pack(">d", value).hex()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise errors.RequestInvalidError(f"read {where}: the key {key!r} is a {type(key).__name__}")
        return {key: _encoded(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_encoded(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise errors.RequestInvalidError(
        f"read {where}: a {type(value).__name__} has no place in JSON",
        remedy="give None, bool, int, float, str, dict or list",
    )
