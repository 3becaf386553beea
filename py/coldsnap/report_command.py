"""``coldsnap report``: the command around `coldsnap._bench.html`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from coldsnap import errors, terminal
from coldsnap._bench import html


def main(argv: Sequence[str]) -> int:
    """Draw one report.

    Args:
        argv: The arguments after ``report``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md).
    """
    parser = terminal.parser_for(
        "report", "Draw what coldsnap calibrate has measured: report.html, which needs nothing else, and plots as PNG."
    )
    parser.add_argument("results", metavar="RESULTS", help="a results.json, also one of another machine")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where report.html and plots/ go")
    parser.add_argument("--trace", metavar="FILE", help="a trace of the same run, of coldsnap calibrate --trace=FILE")
    return terminal.run(parser, argv, "report", _report)


def _report(flags: argparse.Namespace) -> int:
    results = _document(flags.results, "results")
    trace = None if flags.trace is None else _document(flags.trace, "trace")
    written = html.write(results, Path(flags.output), trace)
    if flags.json:
        terminal.print_json({"format": 1, "files": [str(path) for path in written]})
    else:
        print(f"{terminal.printable(written[0])}, and {len(written) - 1} plots beside it")
    return 0


def _document(path: str, what: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        RequestInvalidError: It can't be read, or is no JSON object.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:
        raise errors.RequestInvalidError(
            f"read the {what} {path}: {error}", remedy="give a file that coldsnap calibrate has written"
        ) from error
    if not isinstance(document, dict):
        raise errors.RequestInvalidError(
            f"read the {what} {path}: it is no JSON object", remedy="give a file that coldsnap calibrate has written"
        )
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
