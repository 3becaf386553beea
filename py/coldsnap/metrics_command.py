"""``coldsnap metrics``: the command around `coldsnap.metrics`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from coldsnap import metrics, terminal


def main(argv: Sequence[str]) -> int:
    """Print the metrics, or write them to a file.

    Args:
        argv: The arguments after ``metrics``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md).
    """
    parser = terminal.parser_for("metrics", "Tell the last receipts of requests as OpenMetrics text.")
    parser.add_argument("--output", metavar="FILE", help="write them there; readers see the old text or the new one")
    return terminal.run(parser, argv, "metrics", _tell)


def _tell(flags: argparse.Namespace) -> int:
    metrics.require_place(flags.output)
    found = metrics.text(os.environ)
    if flags.output:
        metrics.write(flags.output, found)
    if flags.json:
        terminal.print_json({"format": 1, "text": found})
    elif not flags.output:
        print(found, end="")
    return 0
