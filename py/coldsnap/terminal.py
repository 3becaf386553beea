"""What the commands for people share: how a command runs and fails, tables, and a progress line.

Colour, rules and progress are for terminals (NO_COLOR is honoured). In a pipe a table is plain text, one row a line and
never folded, so that grep and cut work on it. Where it matters stdout has the answer alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from coldsnap import cli, errors, metrics, receipts

_GAP = "  "


def parser_for(name: str, description: str) -> argparse.ArgumentParser:
    """A parser for the command of that name, with its example from the table of commands and the flag ``--json``."""
    example = next(command.example for command in cli.COMMANDS if command.name == name)
    parser = argparse.ArgumentParser(
        prog=f"coldsnap {name}", description=description, epilog=f"example:  {example}", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print the answer as one line of JSON, also a failure's")
    return parser


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Give a command that has receipts the flag ``--metrics``; its work appends them to ``flags.receipts``."""
    parser.add_argument("--metrics", metavar="FILE", help="then write OpenMetrics text of the last receipts there")


def run(
    parser: argparse.ArgumentParser, argv: Sequence[str], operation: str, work: Callable[[argparse.Namespace], int]
) -> int:
    """Parse flags, do the work, and turn its failure into one sentence on stderr and, with ``--json``, a receipt.

    Args:
        parser: It has the flag ``--json``.
        argv: The arguments after the command's name.
        operation: What the receipt of a failure calls it, where the failure brings none of its own.
        work: Takes the flags, prints the answer, and returns the exit code.
    Returns:
        The exit code: that of ``work``, or that of the error (docs/errors.md); that of metrics which can't be written,
        where the work was done.
    """
    try:
        flags = parser.parse_args(argv)
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    flags.receipts = []
    path = None
    try:
        metrics.require_place(getattr(flags, "metrics", None))
        path = getattr(flags, "metrics", None)
        code = work(flags)
    except (errors.Error, KeyboardInterrupt) as failure:
        receipt = getattr(failure, "receipt", None) or receipts.Account(operation).receipt(failure)
        flags.receipts.append(receipt)
        _say(parser, failure)
        if flags.json:
            print(receipt.to_json())
        code = _exit_code(failure)
    try:
        if path is not None:
            own = [each.as_dict() for each in reversed(flags.receipts)]
            metrics.write(path, metrics.text(os.environ, own))
    except errors.Error as failure:
        _say(parser, failure)
        code = code or failure.exit_code
    return code


def _say(parser: argparse.ArgumentParser, failure: BaseException) -> None:
    print(f"{parser.prog}: {str(failure) or 'interrupted'}", file=sys.stderr)


def _exit_code(failure: BaseException) -> int:
    return failure.exit_code if isinstance(failure, errors.Error) else errors.Cancelled.exit_code


def print_json(report: Any) -> None:
    """Print a report as one line. Names stand escaped, so that no pipe's encoding can refuse them."""
    print(json.dumps(report, allow_nan=False, separators=(",", ":")))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows of text under their titles.

    Args:
        titles: Of the columns; the first column is the one that is folded where a terminal is too narrow.
        rows: As many texts each.
        right: Titles of the columns that are aligned to the right.
    """
    if sys.stdout.isatty():
        _print_for_eyes(titles, rows, right)
        return
    columns = list(zip(titles, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in (titles, *rows):
        cells = [
            cell.rjust(width) if title in right else cell.ljust(width)
            for title, cell, width in zip(titles, row, widths, strict=True)
        ]
        print(_GAP.join(cells).rstrip())


def _print_for_eyes(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    from rich import box  # with the terminal; a pipe need not wait for it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, title in enumerate(titles):
        table.add_column(title, justify="right" if title in right else "left", overflow="fold", no_wrap=index != 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # names may look like rich's markup
    Console(highlight=False).print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line; a terminal that is too narrow gets a value over several lines."""
    width = max(len(name) for name, _ in fields) + len(_GAP)
    for name, value in fields:
        lines = [value]
        if sys.stdout.isatty():
            room = max(shutil.get_terminal_size().columns - width, 20)
            lines = textwrap.wrap(value, room) or [""]
        for index, line in enumerate(lines):
            print(f"{name if index == 0 else '':{width}}{line}")


def printable(text: str | os.PathLike[str]) -> str:
    """The text without what a terminal would obey, such as an escape in a tensor's name."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in str(text)
    )


def progress(stream: Any = None) -> Callable[[int, int], None] | None:
    """A function for ``progress`` arguments that keeps one line on stderr up to date; None where that is no terminal."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return None
    begin = time.monotonic()

    def show(done: int, total: int) -> None:
        rate = done / max(time.monotonic() - begin, 1e-9) / 1e9
        line = f"{100 * done // max(total, 1):3d} %  {done / 1e9:.2f} of {total / 1e9:.2f} GB  {rate:.2f} GB/s"
        print(f"\r{line:<60}", end="\n" if done == total else "", file=stream, flush=True)

    return show
