"""``coldsnap qualify``: the command around `coldsnap.adapters.qualification`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from coldsnap import operations, terminal
from coldsnap.adapters import qualification
from coldsnap.request_schema import Request


def main(argv: Sequence[str]) -> int:
    """Qualify one artifact.

    Args:
        argv: The arguments after ``qualify``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md).
    """
    parser = terminal.parser_for(
        "qualify", "Start an engine from an artifact, in a process of its own, and compare what it says."
    )
    parser.add_argument(
        "arguments", metavar="JSON", type=_mapping, help='of the engine, such as {"model": "/models/m"}'
    )
    parser.add_argument("--engine", choices=qualification.ENGINES, default=qualification.ENGINES[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--artifact", metavar="PATH", help="the artifact's folder, the one with artifact.json")
    which.add_argument("--store", metavar="DIR", help="the store; as at the engine's own start else")
    parser.add_argument("--timeout-s", metavar="S", type=int, help="most seconds that one start may take")
    terminal.add_metrics(parser)
    return terminal.run(parser, argv, "qualify", _qualify)


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as cause:
        raise argparse.ArgumentTypeError(f"it is no JSON: {cause}") from cause
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("it is no JSON object")
    return found


def _qualify(flags: argparse.Namespace) -> int:
    names = ("engine", "arguments", "artifact", "store", "timeout_s")
    values = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    receipt, report = operations.run(Request("qualify", values), lambda done, total: None)
    flags.receipts.append(receipt)
    assert report is not None
    if flags.json:
        terminal.print_json({"format": 1, "artifact_root": receipt.artifact_root, **report})
    else:
        print(f"qualified: {receipt.artifact_root}, compared with {report['compared_with']}, in {receipt.wall_s:.1f} s")
    return 0
