"""absl flags in a set of their own, so that importing coldsnap adds none to a program that uses absl itself."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from coldsnap import errors


def run(values: flags.FlagValues, argv: Sequence[str], usage: str, work: Callable[[], int]) -> int:
    """Run a program: read its flags, print `usage` for --help, else do its `work`; give the exit code.

    A failure is one sentence on stderr that begins with the program's name.
    """
    flags.DEFINE_boolean("help", False, "this text", flag_values=values)
    try:
        parse(values, argv)
        if values["help"].value:
            print(usage)
            return 0
        return work()
    except errors.Error as error:
        print(f"{Path(argv[0]).stem}: {error}", file=sys.stderr)
        return error.exit_code


def parse(values: flags.FlagValues, argv: Sequence[str]) -> None:
    """Read `argv` (the program's name first) into `values`.

    Raises:
        RequestInvalidError: A flag is unknown, a value does not parse, or something is no flag at all.
    """
    try:
        rest = values(list(argv))
    except flags.UnrecognizedFlagError as error:
        near = difflib.get_close_matches(error.flagname, list(values), n=1)
        remedy = f"did you mean --{near[0]}?" if near else "see --help"
        raise errors.RequestInvalidError(f"read the flags: --{error.flagname} is unknown", remedy=remedy) from error
    except flags.Error as error:
        # absl's words may span lines; whoever reads stderr expects one sentence.
        raise errors.RequestInvalidError(" ".join(str(error).split()), remedy="see --help") from error
    if len(rest) > 1:
        raise errors.RequestInvalidError(
            f"read the flags: {rest[1]!r} is not one", remedy="write --name=value, see --help"
        )


def whole_number(values: flags.FlagValues, name: str, low: int, high: int) -> int:
    """Read a flag that holds a whole number.

    Raises:
        RequestInvalidError: It is none, or not from `low` to `high`.
    """
    text = str(values[name].value).strip()
    # Sixteen digits hold every bound here; Python refuses to read thousands of them with a message of its own.
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and low <= int(text) <= high):
        raise errors.RequestInvalidError(
            f"read --{name}={values[name].value}", remedy=f"give a whole number from {low} to {high}"
        )
    return int(text)


def user_path(flag: str, text: str) -> Path:
    """Resolve a path as the user meant it: `bazel run` starts programs elsewhere and names the user's folder.

    Raises:
        RequestInvalidError: The path is empty or holds a NUL.
    """
    if not text or "\0" in text:
        raise errors.RequestInvalidError(f"read --{flag}={text!r}: no path", remedy="give the path of a folder or file")
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY") or os.getcwd(), os.path.expanduser(text))
