"""``coldsnap completion SHELL``: what completes the commands, their flags and file names in bash, zsh or fish.

The text is made from the table of commands and from the flags that each ``--help`` names, so it can't lag behind them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Sequence

from coldsnap import cli, terminal

_FLAG = re.compile(r"^\s*(?:-\w, )?(--[a-z][a-z0-9_-]*)|[\[\s](--[a-z][a-z0-9_-]*)", re.MULTILINE)
_GLOBAL = ("--help", "--version", "--log-level", "--debug")


def main(argv: Sequence[str]) -> int:
    """Print the completion for one shell.

    Args:
        argv: The arguments after ``completion``.
    Returns:
        The exit code: 0, or 2 for a shell that is not known.
    """
    parser = terminal.parser_for(
        "completion", "Print what completes these commands; load it in your shell's start file."
    )
    parser.add_argument("shell", choices=tuple(TEXTS), help="bash and zsh: eval it; fish: pipe it to source")
    return terminal.run(parser, argv, "completion", _print)


def _print(flags: argparse.Namespace) -> int:
    text = TEXTS[flags.shell]()
    if flags.json:
        terminal.print_json({"format": 1, "shell": flags.shell, "text": text})
    else:
        print(text, end="")
    return 0


def flags_of(command: cli.Command) -> list[str]:
    """The flags of a command, and of the commands that it has itself, as their help names them."""
    own = [[word, "--help"] for word in command.words if command.name == "store"]
    texts = [_help(command.name, *arguments) for arguments in [["--help"], *own]]
    found = {one or other for text in texts for one, other in _FLAG.findall(text)}
    return sorted(found | {"--help"})


def _help(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        cli.main(["coldsnap", *arguments])
    return out.getvalue()


def _bash() -> str:
    names = " ".join((*(command.name for command in cli.COMMANDS), *_GLOBAL))
    cases = [
        f"      {command.name}) words={shlex.quote(' '.join((*command.words, *flags_of(command))))} ;;\n"
        for command in cli.COMMANDS
    ]
    return (
        "_coldsnap() {\n"
        '  local words=""\n'
        '  if [ "$COMP_CWORD" -eq 1 ]; then\n'
        f"    words={shlex.quote(names)}\n"
        "  else\n"
        '    case "${COMP_WORDS[1]}" in\n' + "".join(cases) + "    esac\n"
        "  fi\n"
        '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))\n'
        "}\n"
        "complete -o default -o bashdefault -F _coldsnap coldsnap\n"  # file names where no word fits
    )


def _zsh() -> str:
    names = " ".join(shlex.quote(f"{command.name}:{command.help}") for command in cli.COMMANDS)
    cases = [
        f"      {command.name}) compadd -- {' '.join((*command.words, *flags_of(command)))} ;;\n"
        for command in cli.COMMANDS
    ]
    return (
        "#compdef coldsnap\n"
        "_coldsnap() {\n"
        "  if (( CURRENT == 2 )); then\n"
        f"    local -a names=({names})\n"
        "    _describe command names\n"
        f"    compadd -- {' '.join(_GLOBAL)}\n"
        "  else\n"
        '    case "$words[2]" in\n' + "".join(cases) + "    esac\n"
        "    _files\n"
        "  fi\n"
        "}\n"
        "compdef _coldsnap coldsnap\n"
    )


def _fish() -> str:
    lines = [f"complete -c coldsnap -n __fish_use_subcommand -l {flag[2:]}" for flag in _GLOBAL]
    for command in cli.COMMANDS:
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c coldsnap -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.help)}")
        lines += [f"complete -c coldsnap -n {seen} -a {word}" for word in command.words]
        lines += [f"complete -c coldsnap -n {seen} -l {flag[2:]}" for flag in flags_of(command)]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


TEXTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
