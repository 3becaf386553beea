"""Strict reading of the small JSON files of the state folder: exactly the known keys, each of its kind.

A check takes a value and the place where it stands, gives the value back, and raises ValueError naming both otherwise.
Places are written as JSONPath (RFC 9535) writes them: ``$.entries[0].key``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Check = Callable[[Any, str], Any]

HEX64 = re.compile(r"[0-9a-f]{64}")
_MOST = 1e300  # JSON has integers that no float can hold


def load(data: bytes, check: Check) -> Any:
    """Read one JSON document and hold it to ``check``.

    Raises:
        ValueError: It is no JSON in UTF-8, a key stands twice, or the check finds something; the text says where.
    """
    try:
        return check(json.loads(data.decode("utf-8"), object_pairs_hook=_no_key_twice, parse_constant=_refuse), "$")
    except RecursionError:
        raise ValueError("$ is nested too deeply") from None


def record(**fields: Check) -> Check:
    """An object with exactly these keys."""

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is no object")
        for missing in fields.keys() - value.keys():
            raise ValueError(f"{where} has no {missing!r}")
        for unknown in value.keys() - fields.keys():
            raise ValueError(f"{where} has the unknown key {unknown!r}")
        return {name: each(value[name], f"{where}.{name}") for name, each in fields.items()}

    return check


def array(each: Check) -> Check:
    """A list of one kind."""

    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{where} is no array")
        return [each(item, f"{where}[{index}]") for index, item in enumerate(value)]

    return check


def optional(each: Check) -> Check:
    """What ``each`` takes, or null."""
    return lambda value, where: None if value is None else each(value, where)


def whole(least: int, most: int, multiple_of: int = 1) -> Check:
    """A whole number within bounds."""

    def check(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most or value % multiple_of:
            bounds = f"from {least} to {most}" + (f", a multiple of {multiple_of}" if multiple_of > 1 else "")
            raise ValueError(f"{where} is {_show(value)} and not a whole number {bounds}")
        return value

    return check


def decimal(value: Any, where: str) -> int:
    """A number past 2^53 - 1, which stands as text (docs/format.md, "Canonical JSON")."""
    if not isinstance(value, str) or not re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        raise ValueError(f"{where} is {_show(value)} and not a whole number as text")
    return int(value)


def rate(value: Any, where: str) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
        raise ValueError(f"{where} is {_show(value)} and not a number above 0")
    return float(value)


def text(pattern: str | re.Pattern[str] = r"[^\x00-\x1f]{1,200}") -> Check:
    """A string that ``pattern`` matches from end to end."""

    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"{where} is {_show(value)}, which is not of its form")
        return value

    return check


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
