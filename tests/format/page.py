"""docs/format.md, cut into what tests run and compare."""

from __future__ import annotations

import pathlib
import re
from typing import Any

TEXT = pathlib.Path("docs/format.md").read_text(encoding="utf-8")
SIZES = (0, 1, 65535, 65536, 65537, 131072)  # of the examples, in bytes


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/format.md has no section {title!r}"
    return found.group(1)


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)


def table(title: str, first_heading: str) -> list[list[str]]:
    """The rows of the table of a section whose first heading it is, without code marks."""
    rows = re.search(rf"^\| {first_heading} \|.*\n\| --- .*\n((?:\|.*\n)+)", section(title), re.MULTILINE)
    assert rows, f"section {title!r} has no table with the heading {first_heading!r}"
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in rows.group(1).splitlines()]


def reference_reader() -> dict[str, Any]:
    """The names that the page's reference reader defines."""
    (code,) = blocks("A reference reader", "python")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/format.md", "exec"), names)
    return names
