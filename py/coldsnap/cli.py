"""The ``coldsnap`` command: ``coldsnap calibrate ...``, ``coldsnap verify ...``, ``coldsnap --version``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from coldsnap import version

USAGE = """\
usage: coldsnap COMMAND [flags]

  calibrate    measure this machine and how close restores come to it
  verify       read a whole artifact and compare every digest

  --version    print the version
  --help       this text; `coldsnap COMMAND --help` tells a command's flags

example:  coldsnap calibrate --path=/models
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The program's name and what follows it; `sys.argv` by default.
    Returns:
        The exit code: 2 for a command that is not known, else the command's own.
    """
    arguments = list(sys.argv if argv is None else argv)
    command = arguments[1] if len(arguments) > 1 else ""
    if command in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0
    if command == "--version":
        print(f"coldsnap {version.VERSION}")
        return 0
    if command == "calibrate":
        from coldsnap import calibrate  # numpy and rich come with it; --version should not wait for them

        return calibrate.main(arguments[1:])
    if command == "verify":
        from coldsnap import verify_command

        return verify_command.main(arguments[2:])
    what = f"run {command!r}: no such command" if command else "run: no command was given"
    print(f"coldsnap: {what}; known: calibrate, verify; see coldsnap --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
