"""The ``coldsnap`` command: one table of commands, each a module that is imported only when it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from coldsnap import version

_INTERRUPTED, _NO_READER = 130, 128 + 13  # as a shell reports SIGPIPE


class Command(NamedTuple):
    """One command.

    Attributes:
        name: As it is typed.
        module: Where its ``main(arguments)`` is; imported when the command runs, so that ``--version`` waits for none.
        help: One line for people.
        example: A command line that works.
        with_name: Whether ``main`` wants the name too, as programs of absl do.
        words: What may follow the name, for completion: commands of its own, or the values of its first argument.
    """

    name: str
    module: str
    help: str
    example: str
    with_name: bool = False
    words: tuple[str, ...] = ()


COMMANDS = (
    Command(
        "calibrate",
        "coldsnap.calibrate",
        "measure this machine and how close restores come to it",
        "coldsnap calibrate --path=/models",
        with_name=True,
    ),
    Command(
        "report",
        "coldsnap.report_command",
        "draw a kept results.json as a page that a browser shows",
        "coldsnap report results/results.json --output=report",
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
        "qualify",
        "coldsnap.qualify_command",
        "start an engine from an artifact and compare its answers",
        """coldsnap qualify --store /models/store '{"model": "/models/m"}'""",
    ),
    Command(
        "store",
        "coldsnap.store_command",
        "list, verify, collect, remove, pack and unpack artifacts",
        "coldsnap store ls --store /models/store",
        words=("ls", "verify", "unquarantine", "gc", "rm", "pack", "unpack"),
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
    Command(
        "metrics",
        "coldsnap.metrics_command",
        "tell the last receipts of requests as OpenMetrics text",
        "coldsnap metrics --output /var/lib/node_exporter/coldsnap.prom",
    ),
    Command(
        "completion",
        "coldsnap.completion_command",
        "print what completes these commands in bash, zsh or fish",
        'eval "$(coldsnap completion bash)"',
        words=("bash", "zsh", "fish"),
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
        + f"  {'--log-level':{width}}   before a command: log to stderr, as --log-level=info\n"
        + f"  {'--debug':{width}}   before a command: print the traceback of a failure of our own\n"
        + f"  {'--help':{width}}   this text; `coldsnap COMMAND --help` tells a command's flags\n"
        + "\nexamples:\n"
        + "".join(examples)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The program's name and what follows it; `sys.argv` by default.
    Returns:
        The exit code: 2 for a command that is not known, 1 where a command failed in a way that it does not know, 141
        where nobody reads its output any more, else the command's own.
    """
    arguments, debug, level = _leading(sys.argv if argv is None else argv)
    try:
        code = _run(arguments, level)
        if sys.stdout is not None:  # a process may start with it closed
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered has no reader either, and the interpreter would complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER
    except KeyboardInterrupt:
        print("coldsnap: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as failure:
        if debug:
            raise
        what = f"{type(failure).__name__}: {failure}"
        print(f"coldsnap: internal error: {what}; run coldsnap --debug to see where, and report it", file=sys.stderr)
        return 1


def _leading(argv: Sequence[str]) -> tuple[list[str], bool, str | None]:
    """The arguments without the flags that stand before a command; whether --debug was one, and the level of the log."""
    arguments, debug, level = list(argv), False, None
    while len(arguments) > 1:
        flag, given, value = arguments[1].partition("=")
        if flag == "--debug" and not given:
            debug = True
        elif flag == "--log-level":
            if not given:
                value = "".join(arguments[2:3])
                del arguments[2:3]
            level = value
        else:
            break
        del arguments[1]
    return arguments, debug, level


def _run(arguments: Sequence[str], level: str | None) -> int:
    name = arguments[1] if len(arguments) > 1 else ""
    if name in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if name == "--version":
        print(f"coldsnap {version.VERSION}")
        return 0
    for command in COMMANDS:
        if command.name == name:
            from coldsnap import log  # with the receipts, for which --version does not wait

            if level is not None and level not in log.LEVELS:
                print(f"coldsnap: log with level {level!r}: known: {', '.join(log.LEVELS)}", file=sys.stderr)
                return 2
            run = importlib.import_module(command.module).main
            with log.to_stderr(level):
                code: int = run(arguments[1 if command.with_name else 2 :])
            return code
    what = f"run {name!r}: no such command" if name else "run: no command was given"
    known = ", ".join(command.name for command in COMMANDS)
    print(f"coldsnap: {what}; known: {known}; see coldsnap --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
