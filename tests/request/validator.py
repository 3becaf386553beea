"""JSON Schema, as much of it as `coldsnap schema` uses: which rules a document breaks, and where.

Keywords that this does not know are an error, so that no rule is silently left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Broken = tuple[str, str]  # where, as JSONPath, and the keyword

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),  # 1.0 is none here: readers in other languages should not need to tell
    "number": (int, float),
}
_PLAIN = {"description", "$schema", "title", "$defs", "type", "enum"}


def broken(schema: Any, value: Any, where: str = "$") -> set[Broken]:
    """The rules of ``schema`` that ``value`` breaks."""
    if schema is False:
        return {(where, "false")}
    if "type" in schema and not _is_a(value, schema["type"]):
        return {(where, "type")}
    found = {(where, "enum")} if "enum" in schema and not _among(value, schema["enum"]) else set()
    for keyword, wanted in schema.items():
        if keyword not in _PLAIN:
            found |= set(_KEYWORDS[keyword](schema, wanted, value, where))
    return found


def rules(schema: dict[str, Any], where: str = "$") -> Iterator[Broken]:
    """Every rule that a request can break, under the place where it is."""
    for keyword, wanted in schema.items():
        if keyword == "properties":
            for name, each in wanted.items():
                yield from rules(each, f"{where}.{name}")
        elif keyword == "items":
            yield from rules(wanted, f"{where}[0]")
        elif keyword == "dependentSchemas":
            for each in wanted.values():
                yield from ((f"{where}.{name}", "false") for name in each["properties"])
        elif keyword in ("then", "else"):
            yield from _rules_of_branch(wanted, where)
        elif keyword not in ("description", "required", "if"):
            yield where, keyword
        elif keyword == "required":
            yield from ((f"{where}.{name}", keyword) for name in wanted)


def _rules_of_branch(schema: dict[str, Any], where: str) -> Iterator[Broken]:
    """Of what holds only beside some values: names that must not be there, and plain keywords."""
    for keyword, wanted in schema.items():
        if keyword == "properties":
            yield from ((f"{where}.{name}", "false") for name in wanted)
        else:
            yield where, keyword


def _is_a(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    return any(isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names)


def _among(value: Any, known: list[Any]) -> bool:
    return any(value == each and type(value) is type(each) for each in known)


def _properties(schema: dict[str, Any], wanted: dict[str, Any], value: Any, where: str) -> Iterator[Broken]:
    for name in wanted.keys() & _keys(value):
        yield from broken(wanted[name], value[name], f"{where}.{name}")


def _additional(schema: dict[str, Any], wanted: Any, value: Any, where: str) -> Iterator[Broken]:
    for name in _keys(value) - schema.get("properties", {}).keys():
        if wanted is False:
            yield where, "additionalProperties"
        else:
            yield from broken(wanted, value[name], f"{where}.{name}")


def _required(schema: dict[str, Any], wanted: list[str], value: Any, where: str) -> Iterator[Broken]:
    if isinstance(value, dict):
        yield from ((f"{where}.{name}", "required") for name in wanted if name not in value)


def _dependent(schema: dict[str, Any], wanted: dict[str, Any], value: Any, where: str) -> Iterator[Broken]:
    for name in wanted.keys() & _keys(value):
        yield from broken(wanted[name], value, where)


def _one_of(schema: dict[str, Any], wanted: list[dict[str, Any]], value: Any, where: str) -> Iterator[Broken]:
    if sum(not broken(each, value, where) for each in wanted) != 1:
        yield where, "oneOf"


def _any_of(schema: dict[str, Any], wanted: list[dict[str, Any]], value: Any, where: str) -> Iterator[Broken]:
    if all(broken(each, value, where) for each in wanted):
        yield where, "anyOf"


def _if(schema: dict[str, Any], wanted: dict[str, Any], value: Any, where: str) -> Iterator[Broken]:
    yield from broken(schema["else" if broken(wanted, value, where) else "then"], value, where)


def _nothing(*_: Any) -> Iterator[Broken]:
    """Of what `_if` looks at."""
    return iter(())


def _items(schema: dict[str, Any], wanted: dict[str, Any], value: Any, where: str) -> Iterator[Broken]:
    for item in value if isinstance(value, list) else ():
        yield from broken(wanted, item, f"{where}[0]")  # one name for all of them


def _when(kind: type | tuple[type, ...], holds: Any, keyword: str) -> Any:
    def check(schema: dict[str, Any], wanted: Any, value: Any, where: str) -> Iterator[Broken]:
        if isinstance(value, kind) and not isinstance(value, bool) and not holds(value, wanted):
            yield where, keyword

    return check


def _keys(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


_KEYWORDS: dict[str, Any] = {
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "dependentSchemas": _dependent,
    "oneOf": _one_of,
    "anyOf": _any_of,
    "if": _if,
    "then": _nothing,
    "else": _nothing,
    "items": _items,
    "minimum": _when((int, float), lambda value, least: value >= least, "minimum"),
    "maximum": _when((int, float), lambda value, most: value <= most, "maximum"),
    "multipleOf": _when(int, lambda value, of: value % of == 0, "multipleOf"),
    "pattern": _when(str, lambda value, pattern: re.search(pattern.removesuffix("$") + r"\Z", value, re.A), "pattern"),
    "minLength": _when(str, lambda value, least: len(value) >= least, "minLength"),
    "maxLength": _when(str, lambda value, most: len(value) <= most, "maxLength"),
    "minItems": _when(list, lambda value, least: len(value) >= least, "minItems"),
    "maxItems": _when(list, lambda value, most: len(value) <= most, "maxItems"),
}
