"""The two tables of docs/filesystems.md: found, compared and written by the name of the file system."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.filesystems.matrix import CAPTURES, RESTORES, Rows
from tests.filesystems.systems import SYSTEMS

_HEADS = {"captures": CAPTURES, "restores": RESTORES}
_BLOCK = re.compile(r"(<!-- (?P<table>captures|restores) -->\n)(?P<rows>.*?)(<!-- /(?P=table) -->)", re.DOTALL)


def shown(text: str) -> dict[str, Rows]:
    """The rows that a page shows."""
    tables = {found["table"]: _cells(found["rows"]) for found in _BLOCK.finditer(text)}
    captures, restores = tables["captures"], tables["restores"]
    return {name: Rows(captures[name], restores[name]) for name in captures if name in restores}


def rewrite(text: str, came_out: Mapping[str, Rows]) -> str:
    """The page with these rows in place of its own; a file system without a new one keeps its old one."""
    rows = {**shown(text), **came_out}

    def fill(found: re.Match[str]) -> str:
        head = ["file system", *_HEADS[found["table"]]]
        lines = [head, ["---"] * len(head)]
        lines += [[each.name, *getattr(rows[each.name], found["table"])] for each in SYSTEMS if each.name in rows]
        return found[1] + "".join(f"| {' | '.join(line)} |\n" for line in lines) + found[4]

    return _BLOCK.sub(fill, text)


def _cells(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {line[0]: line[1:] for line in lines}
