"""What the pages name is there: files, folders, Bazel targets and options, variables, headings, results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import table
from coldsnap import settings
from tests.docs import pages

TOP = pages.work_tree()
PAGES = pages.all_pages(TOP)
ROOMS = ("cc", "py", "bench", "tests", "tools", "third_party", "docs", ".ci")
COMMANDS = {"build", "test", "run", "shutdown", "query"}


def name(page: Path) -> str:
    return str(page.relative_to(TOP))


def every_word(page: Path) -> list[pages.Link]:
    """The words in code marks and in shell blocks."""
    found = [pages.Link(mark.where, word) for mark in pages.code_marks(page, TOP) for word in mark.target.split()]
    for block in pages.blocks(page, TOP, "sh"):
        found += [pages.Link(block.where, word) for words in pages.commands(block) for word in words]
    return found


def target_exists(label: str) -> bool:
    """Whether `//folder:name`, `//folder`, `//folder:all` or `//folder/...` is in the work tree, or a macro makes it."""
    folder, colon, target = label.removeprefix("//").partition(":")
    if folder.endswith("..."):
        return (TOP / folder.removesuffix("...")).is_dir()
    build = TOP / folder / "BUILD"
    if not build.is_file():
        return False
    if target == "all" or (TOP / folder / target).is_file():
        return True
    wanted = target if colon else folder.rpartition("/")[2]
    stem = re.sub(r"_(host|gpu)$", "", wanted)
    text = build.read_text(encoding="utf-8")
    # Lists of names and globs make targets too; a file of the target's name is what such a target is made of.
    made = any((TOP / folder).glob(f"{stem}.*")) or any((TOP / folder).glob(f"*/{stem.partition('_')[2]}.*"))
    from_macro = wanted in ("stub", "stub_test", "update_stub") and "stub = " in text
    return f'"{wanted}"' in text or f'"{stem}"' in text or made or from_macro


def test_every_page_is_there() -> None:
    assert [name(page) for page in PAGES if not page.is_file()] == []
    licence = (TOP / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert len(licence.splitlines()) > 190  # the whole text, not a note that points to it


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links(page: Path) -> None:
    for link in pages.links(page, TOP):
        if link.target.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{link.where} links to {link.target}, which is not there"
        assert linked.is_relative_to(TOP), f"{link.where} links to {link.target}, outside the repository"
        if anchor:
            assert anchor in pages.anchors(linked), f"{link.where} links to {link.target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named(page: Path) -> None:
    for word in every_word(page):
        path = word.target.rstrip(".,;:")
        if path.partition("/")[0] not in ROOMS or "/" not in path or re.search(r"[<>*{}…]|[A-Z]{4,}\.|\.\.\.", path):
            continue
        assert (TOP / path).exists(), f"{word.where} names {path}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_that_are_named(page: Path) -> None:
    for word in every_word(page):
        label = word.target.rstrip(",;")
        if label.startswith("//") and not re.search(r"[<>*{}]", label) and label not in ("//...", "//that:test"):
            assert target_exists(label), f"{word.where} names {label}, and no such target was found"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_bazel_commands(page: Path) -> None:
    options = "".join((TOP / file).read_text(encoding="utf-8") for file in (".bazelrc", "tools/bazelrc/common.rc"))
    for block in pages.blocks(page, TOP, "sh"):
        for words in pages.commands(block):
            if "./bazelw" in words:
                command = words[words.index("./bazelw") + 1]
                assert command in COMMANDS, f"{block.where}: bazel {command}"
    for word in every_word(page):
        if word.target.startswith("--config="):
            config = word.target.removeprefix("--config=")
            assert re.search(rf"^\w+:{re.escape(config)} ", options, re.MULTILINE), f"{word.where}: {word.target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_variables_that_are_named(page: Path) -> None:
    known = {found for path in _sources() for found in re.findall(r"COLDSNAP_[A-Z0-9_]*[A-Z0-9]", path.read_text())}
    known |= {spec.variable for spec in settings.HYDRATION}
    for found in re.findall(r"COLDSNAP_[A-Z0-9_]*[A-Z0-9]\b(?!_)", page.read_text(encoding="utf-8")):
        assert found in known, f"{name(page)} names {found}, which no code reads"


def _sources() -> list[Path]:
    folders = [TOP / "py", TOP / "tools", TOP / "cc"]
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".bzl", ".cc", ".rc")]
    return [TOP / "bazelw", *(path for path in found if not path.name.endswith("_test.py"))]


def test_decisions_have_five_lines() -> None:
    heads = ["Context", "Decision", "Reason", "Consequence", "Source"]
    for page in sorted((TOP / "docs" / "decisions").glob("*.md"))[2:]:
        text = page.read_text(encoding="utf-8")
        assert re.match(rf"# {page.name[:4]}: .+\n\n- ", text), name(page)
        assert re.findall(r"^- (\w+):", text, re.MULTILINE) == heads, name(page)
    numbers = [page.name[:4] for page in sorted((TOP / "docs" / "decisions").glob("*.md"))]
    assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("page", table.PAGES)
def test_measured_numbers_come_from_results(page: str) -> None:
    """A table between the markers is what its results file gives; with no such file, nothing stands between them."""
    text = (TOP / page).read_text(encoding="utf-8")
    found = list(table._BLOCK.finditer(text))
    assert found
    for each in found:
        if (TOP / each["name"]).is_file():
            assert table.rewrite(each[0], TOP)[0] == each[0], f"{page} is old; run: ./bazelw run //bench:table"
        else:
            assert each["table"] == "", f"{each['name']} is not there, so nothing may stand in its table"
