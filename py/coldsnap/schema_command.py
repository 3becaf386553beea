"""``coldsnap schema``: the JSON Schema (2020-12) of requests and receipts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from coldsnap import errors, receipts, request_schema

_HELP = """\
usage: coldsnap schema

Print the JSON Schema (2020-12) of the requests and receipts of
`coldsnap request`.

example:  coldsnap schema > coldsnap.schema.json
"""


def main(argv: Sequence[str]) -> int:
    """Print the schema.

    Args:
        argv: The arguments after ``schema``; there are none.
    Returns:
        The exit code: 0, or 2 for an argument.
    """
    if list(argv) in (["--help"], ["-h"]):
        print(_HELP, end="")
        return 0
    if argv:
        print(f"coldsnap schema: {argv[0]!r} was given, and it takes no argument", file=sys.stderr)
        return errors.RequestInvalidError.exit_code
    print(json.dumps(document(), indent=1, ensure_ascii=False))
    return 0


def document() -> dict[str, Any]:
    """What is printed: ``$defs`` has ``request`` and ``receipt``; a document is either."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "coldsnap requests and receipts, format 1",
        "$defs": {"request": request_schema.request_schema(), "receipt": receipt_schema()},
        "anyOf": [{"$ref": "#/$defs/request"}, {"$ref": "#/$defs/receipt"}],
    }


def receipt_schema() -> dict[str, Any]:
    """The JSON Schema of a receipt as `coldsnap request` prints it."""
    text, number = {"type": "string"}, {"type": "number"}
    share = {"type": ["number", "null"], "minimum": 0}
    root = {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}
    codes = {"enum": [kind.code for kind in errors.ERROR_CLASSES]}
    properties: dict[str, Any] = {
        "format": {"type": "integer", "minimum": receipts.FORMAT, "maximum": receipts.FORMAT},
        "ok": {"type": "boolean"},
        "operation": {"enum": [*(each.name for each in request_schema.OPERATIONS), *request_schema.NOT_YET, "request"]},
        "artifact_root": root,
        "provider": {"enum": ["native", "python", "recovery", None]},
        "routes": _array(_object({"route": text, "bytes": _COUNT, "extents": _COUNT})),
        "reasons": _array(_object({"code": text, "detail": text})),
        "settings": {"type": "object", "additionalProperties": _object({"value": {}, "source": text})},
        "stages_s": {"type": "object", "additionalProperties": number},
        "wall_s": {"type": "number", "minimum": 0},
        "payload_bytes": _COUNT,
        "bytes_per_second": share,
        "ceiling_ratio": share,
        "limiting_stage": _OPTIONAL_TEXT,
        "residency": _object({"before": share, "after": share}),
        "gds_path": _OPTIONAL_TEXT,
        "verify": _object({"mode": _OPTIONAL_TEXT, "place": _OPTIONAL_TEXT}),
        "versions": {"type": "object", "additionalProperties": text},
        "machine": _object(
            {"cpu": text, "cores": _COUNT, "memory_bytes": _COUNT, "kernel": text, "gpu": _OPTIONAL_TEXT}
        ),
        "error": _object({"code": codes, "message": text, "stage": text, "remedy": text}, "object", "null"),
        "report": {"type": ["object", "null"], "description": "what an operation found out beside its receipt"},
    }
    return _object(properties)


_COUNT = {"type": "integer", "minimum": 0}
_OPTIONAL_TEXT = {"type": ["string", "null"]}


def _object(properties: dict[str, Any], *types: str) -> dict[str, Any]:
    kind: Any = list(types) or "object"
    return {"type": kind, "properties": properties, "required": list(properties), "additionalProperties": False}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
