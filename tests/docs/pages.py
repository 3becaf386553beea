"""The repository's pages, cut into what a test can check: code blocks, links, and names in code marks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Pages at the top stand in the work tree alone, those in docs/ among the test's data too.
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
IN_ORDER = "docs/quickstart.md"  # its blocks go on from each other: quickstart_test.py runs them
_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page: ``where`` names page and line, for messages."""

    where: str
    language: str
    code: str


class Link(NamedTuple):
    """A link of a page, as it is written."""

    where: str
    target: str


def runfiles() -> Path:
    """The top of the repository as a test sees it: only what it has as data."""
    return Path(os.environ["RUNFILES_ROOT"])


def work_tree() -> Path:
    """The top of the work tree, which the test's data are links into.

    Raises:
        FileNotFoundError: They are copies, so nobody knows where the work tree is.
    """
    top = (runfiles() / "README.md").resolve().parent
    if not (top / "WORKSPACE").is_file():
        raise FileNotFoundError(f"find the work tree from README.md: {top} has no WORKSPACE; run this test locally")
    return top


def code_pages() -> list[Path]:
    """The pages whose blocks run each by itself: README.md and docs/**/*.md, below `runfiles`, but `IN_ORDER`."""
    found = [runfiles() / "README.md", *sorted((runfiles() / "docs").rglob("*.md"))]
    return [page for page in found if page != runfiles() / IN_ORDER]


def all_pages(top: Path) -> list[Path]:
    """Every page of the repository's own, below the work tree's ``top``."""
    return [*(top / name for name in TOP), *sorted((top / "docs").rglob("*.md"))]


def blocks(page: Path, top: Path, language: str) -> list[Block]:
    """The fenced blocks of one language."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(f"{page.relative_to(top)}:{_line(text, found.start())}", found["language"], found["code"])
        for found in _FENCED.finditer(text)
        if found["language"] == language
    ]


def prose(page: Path) -> str:
    """The page with its fenced blocks left empty, so that lines keep their numbers."""
    text = page.read_text(encoding="utf-8")
    return _FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)


def links(page: Path, top: Path) -> list[Link]:
    """The links of a page's prose."""
    text = prose(page)
    found = re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", text)
    return [Link(f"{page.relative_to(top)}:{_line(text, each.start())}", each[1]) for each in found]


def code_marks(page: Path, top: Path) -> list[Link]:
    """What stands in single code marks, each as one piece."""
    text = prose(page)
    found = re.finditer(r"`([^`\n]+)`", text)
    return [Link(f"{page.relative_to(top)}:{_line(text, each.start())}", each[1]) for each in found]


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a shell block, each as its words; comments and continued lines are understood."""
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in line.split("&&"):
            words = shlex.split(command, comments=True)
            if words:
                yield words


def anchors(page: Path) -> set[str]:
    """What a link may name behind ``#``: headings, as GitHub spells them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
