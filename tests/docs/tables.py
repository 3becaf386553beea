"""The tables of docs/*.md, made from the code and from what ran, and how they get into the pages.

A table stands between ``<!-- table: NAME -->`` and ``<!-- /table -->``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

import coldsnap
from coldsnap import cli, errors, request_schema, settings
from tests.docs import pages
from tests.engines import results
from tests.reproducible import check
from tests.roots import results as root_results

_BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n)(?P<table>.*?)(<!-- /table -->)", re.DOTALL)

# What each setting takes, and one value that it refuses. A new setting without an entry fails the test.
_KNOWN = {
    "backend": settings.BACKENDS,
    "verify": settings.VERIFY_MODES,
    "verify_mode": settings.TRUST_MODES,
    "place": settings.PLACES,
    "mode": settings.MODES,
}
_COUNTS = {"queue_depth": settings.MAX_QUEUE_DEPTH, "read_threads": settings.MAX_READ_THREADS}
_SIZE = "`67108864`, `64MiB`"
_SIZES = ("pinned_max_bytes", "store_max_bytes")
_PATHS = ("store", "artifact", "control")
# Where a default follows from the machine.
_DEFAULTS = {
    "queue_depth": "from the machine",
    "read_threads": "from the machine",
    "store": "`coldsnap` in the user's XDG cache folder",
    "store_max_bytes": "any number",
    "artifact": "none",
    "control": "none",
}


def accepted(name: str) -> str:
    """What a setting takes, in words for people."""
    if name in _KNOWN:
        return ", ".join(f"`{value}`" for value in _KNOWN[name])
    if name in _COUNTS:
        return f"1 to {_COUNTS[name]}"
    if name == "chunk_bytes":
        return f"a size, a multiple of {settings.LEAF_BYTES}: {_SIZE}"
    if name in _SIZES:
        return f"a size: {_SIZE}"
    if name == "capture_rate":
        return f"a size of at least {settings.MIB}: {_SIZE}"
    if name in _PATHS:
        return "an absolute path"
    raise KeyError(f"say in tests/docs/tables.py what the setting {name} takes")


def edge_values(name: str) -> tuple[list[object], list[object]]:
    """Values of a setting that it takes, and ones just outside, for comparing `accepted` with the parser."""
    if name in _KNOWN:
        return list(_KNOWN[name]), ["", "other", 1]
    if name in _COUNTS:
        return [1, "1", _COUNTS[name], str(_COUNTS[name])], [0, _COUNTS[name] + 1, "x", True, 1.5]
    if name == "chunk_bytes":
        return [settings.LEAF_BYTES, "64KiB", "64MiB", 67108864], [settings.LEAF_BYTES - 1, 0, "64MB"]
    if name == "capture_rate":
        return ["64MiB", settings.MIB], [settings.MIB - 1, "1KiB", 0, "x"]
    if name in _PATHS:
        return ["/", "/models/store"], ["", "store", "~/store", "/a\0b", 1]
    return ["64MiB", 67108864, 1], [0, -1, "x", "64MB"]


def settings_table() -> str:
    """One row for each setting of hydration."""
    arguments = inspect.signature(coldsnap.hydrate).parameters
    rows = ["| argument | variable | takes | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for spec in settings.HYDRATION:
        argument = f"`{spec.name}`" if spec.name in arguments else "none"
        rows.append(f"| {argument} {_row(spec)}")
    return "\n".join(rows) + "\n"


def start_table() -> str:
    """One row for each setting of an engine's start, and of the store."""
    rows = ["| variable | takes | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *map(_row, settings.START)]) + "\n"


def _row(spec: settings.Spec) -> str:
    default = _DEFAULTS[spec.name] if spec.default is None else f"`{spec.default}`"
    return f"| `{spec.variable}` | {accepted(spec.name)} | {default} | {spec.help} |"


def errors_table() -> str:
    """One row for each error code."""
    rows = ["| code | class | also a | exit code | meaning |", "| --- | --- | --- | --- | --- |"]
    for kind in errors.ERROR_CLASSES:
        built_in = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        meaning = " ".join((inspect.getdoc(kind) or "").split())
        rows.append(f"| `{kind.code}` | `{kind.__name__}` | `{built_in.__name__}` | {kind.exit_code} | {meaning} |")
    return "\n".join(rows) + "\n"


def requests_table() -> str:
    """One row for each operation and each key of it; a key that must be there is in bold."""
    rows = ["| operation | key | meaning |", "| --- | --- | --- |"]
    for operation in request_schema.OPERATIONS:
        rows.append(f"| `{operation.name}` | | {operation.help} |")
        for field in operation.fields:
            key = f"**`{field.name}`**" if field.required else f"`{field.name}`"
            rows.append(f"| | {key} | {field.help} |")
    return "\n".join(rows) + "\n"


def commands_table() -> str:
    """One row for each command."""
    rows = ["| command | what it does | example |", "| --- | --- | --- |"]
    rows += [f"| `{command.name}` | {command.help} | `{command.example}` |" for command in cli.COMMANDS]
    return "\n".join(rows) + "\n"


def engines_table() -> str:
    """What //tests/engines:full last showed, by its results file."""
    return results.table(_results_of("engines"))


def reproducible_table() -> str:
    """What //tests/reproducible:check last showed, by its results file."""
    return check.table(_results_of("reproducible"))


def roots_table() -> str:
    """What //tests/roots:debian_testing last showed, by its results file."""
    return root_results.table(_results_of("roots"))


def skips_table() -> str:
    """What it skipped, and why."""
    return root_results.skips_table(_results_of("roots"))


def _results_of(room: str) -> Any:
    return json.loads((pages.runfiles() / "tests" / room / "results.json").read_text(encoding="utf-8"))


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "start": start_table,
    "errors": errors_table,
    "requests": requests_table,
    "commands": commands_table,
    "engines": engines_table,
    "reproducible": reproducible_table,
    "roots": roots_table,
    "skips": skips_table,
}
# Where a table does not stand in the page of its name.
PAGE_OF = {
    "engines": "vllm",
    "reproducible": "supply-chain",
    "roots": "toolchains",
    "skips": "toolchains",
    "start": "settings",
}


def rewrite(text: str) -> tuple[str, list[str]]:
    """Put the tables into a page.

    Returns:
        The new text, and the names of the tables in it.
    Raises:
        KeyError: A marker names a table that is not there.
    """
    names: list[str] = []

    def fill(found: re.Match[str]) -> str:
        names.append(found["name"])
        return found[1] + TABLES[found["name"]]() + found[4]

    return _BLOCK.sub(fill, text), names
