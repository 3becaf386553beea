"""Checks of our own over the text of the repository's files.

A check takes a path, relative to the root, and the file's text, and yields findings as (line number, message).
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator

Finding = tuple[int, str]
Check = Callable[[pathlib.PurePath, str], Iterator[Finding]]

MAX_LINES = 600
# Written by machines, and as long as their content.
GENERATED_SUFFIXES = {".lock", ".json", ".pyi", ".svg", ".html"}
HEADER_SUFFIXES = {".h", ".cuh"}

# Spelled in pieces, so that this file does not find itself.
_PRIVATE = re.compile(r"(?<![\w.$}/])/(?:ro" + r"ot|wo" + r"rk|ho" + r"me/[a-z]\w*|Us" + r"ers/\w+)(?:/|\b)(?!\*)")
_HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("deb", "debian", "org"),
            ("archive", "ubuntu", "com"),
        )
    )
)
_UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def _matches(pattern: re.Pattern[str], text: str, message: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        found = pattern.search(line)
        if found:
            yield number, message.format(found.group())


def no_private_paths(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """A path that only one machine has breaks on all others."""
    yield from _matches(_PRIVATE, text, "{!r} is a path of one machine; remedy: a relative path, or a variable")


def no_registry_hosts(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """Where packages come from is the setting of whoever builds."""
    yield from _matches(_HOSTS, text, "{!r} names a package registry; remedy: name the package and its client")


def nothing_unfinished(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """Open work stands in the issue tracker, where someone finds it."""
    yield from _matches(_UNFINISHED, text, "{!r} marks open work; remedy: finish it or file an issue")


def not_too_long(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """A long file holds more than one thing."""
    lines = text.count("\n")
    if lines > MAX_LINES and path.suffix not in GENERATED_SUFFIXES:
        yield lines, f"{lines} lines, at most {MAX_LINES} are allowed; remedy: split it by what it does"


def header_says_what_it_is(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """Whoever opens a header reads what it promises first."""
    if path.suffix in HEADER_SUFFIXES and not text.startswith("//"):
        yield 1, "a header opens with a comment on what it is for; remedy: write it above #pragma once"


def ends_with_newline(path: pathlib.PurePath, text: str) -> Iterator[Finding]:
    """Tools that join files and compare lines expect it. Canonical JSON has none (docs/format.md)."""
    if path.is_relative_to("tests/golden") and path.suffix == ".json":
        return
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file; remedy: add one"


CHECKS: tuple[Check, ...] = (
    no_private_paths,
    no_registry_hosts,
    nothing_unfinished,
    not_too_long,
    header_says_what_it_is,
    ends_with_newline,
)


def findings(path: pathlib.PurePath, text: str) -> list[Finding]:
    """All findings of all checks in one file, by line."""
    return sorted(finding for check in CHECKS for finding in check(path, text))
