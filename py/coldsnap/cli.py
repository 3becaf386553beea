"""The ``coldsnap`` command: one table of commands, each a module that is imported only when it runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from coldsnap import version


class Command(NamedTuple):
    """One command.

    Attributes:
        name: As it is typed.
        module: Where its ``main(arguments)`` is; imported when the command runs, so that ``--version`` waits for none.
        help: One line for people.
        example: A command line that works.
        with_name: Whether ``main`` wants the name too, as programs of absl do.
    """

    name: str
    module: str
    help: str
    example: str
    with_name: bool = False


COMMANDS = (
    Command(
        "calibrate",
        "coldsnap.calibrate",
        "measure this machine and how close restores come to it",
        "coldsnap calibrate --path=/models",
        with_name=True,
    ),
    Command(
        "verify",
        "coldsnap.verify_command",
        "read a whole artifact and compare every digest",
        "coldsnap verify --admit /models/artifact",
    ),
    Command(
        "inspect",
        "coldsnap.inspect_command",
        "say what an artifact is and holds, and if it is trusted",
        "coldsnap inspect /models/artifact",
    ),
    Command(
        "capabilities",
        "coldsnap.capabilities_command",
        "say what works on this machine, and why the rest does not",
        "coldsnap capabilities --path=/models",
    ),
    Command(
        "store",
        "coldsnap.store_command",
        "list, verify, collect, pack and unpack the artifacts of a store",
        "coldsnap store ls --store /models/store",
    ),
    Command(
        "request",
        "coldsnap.requests",
        "answer one JSON request by one JSON receipt, for programs",
        "coldsnap request request.json",
    ),
    Command(
        "schema",
        "coldsnap.schema_command",
        "print the JSON Schema of requests and receipts",
        "coldsnap schema",
    ),
)


def usage() -> str:
    """The text of ``coldsnap --help``, made from `COMMANDS`."""
    width = max(len(command.name) for command in COMMANDS)
    rows = [f"  {command.name:{width}}   {command.help}\n" for command in COMMANDS]
    examples = [f"  {command.example}\n" for command in COMMANDS]
    return (
        "usage: coldsnap COMMAND [flags]\n\n"
        + "".join(rows)
        + f"\n  {'--version':{width}}   print the version\n"
        + f"  {'--help':{width}}   this text; `coldsnap COMMAND --help` tells a command's flags\n"
        + "\nexamples:\n"
        + "".join(examples)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The program's name and what follows it; `sys.argv` by default.
    Returns:
        The exit code: 2 for a command that is not known, else the command's own.
    """
    arguments = list(sys.argv if argv is None else argv)
    name = arguments[1] if len(arguments) > 1 else ""
    if name in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if name == "--version":
        print(f"coldsnap {version.VERSION}")
        return 0
    for command in COMMANDS:
        if command.name == name:
            run = importlib.import_module(command.module).main
            code: int = run(arguments[1 if command.with_name else 2 :])
            return code
    what = f"run {name!r}: no such command" if name else "run: no command was given"
    known = ", ".join(command.name for command in COMMANDS)
    print(f"coldsnap: {what}; known: {known}; see coldsnap --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
