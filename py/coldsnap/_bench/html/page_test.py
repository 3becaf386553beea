"""A page: everything in it, nothing from elsewhere, and whatever it is given stays text."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coldsnap import errors
from coldsnap._bench.html import page, plots

EVIL = "<script>alert('x')</script>\"&"


class Reader(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def sections(word: str) -> list[page.Section]:
    plot = plots.bars("bars", word, word, "GB/s", [plots.Bar(word, word, 1.0, word, [1.0], bound=2.0, share=word)])
    table = page.Table(["name", "value"], [[word, "1"]], right=["value"])
    return [page.Section(word, [page.Text(word), table, page.Facts([(word, word)]), plot])]


def test_what_it_is_given_stays_text() -> None:
    reader = read(page.page(EVIL, sections(EVIL), {EVIL: json.dumps(EVIL)}))
    assert "script" not in {tag for tag, _ in reader.tags}
    assert not [attributes for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert reader.text.count("alert('x')") == 14  # title, h1, h2, text, cell, facts 2, h3, note, plot 4, download


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = page.page("t", sections("x"), {"results.json": "{}"})
    links = [value or "" for _, tags in read(text).tags for name, value in tags.items() if name.endswith("href")]
    assert links
    for link in links:
        assert re.match(r"data:|plots/\w+\.png$|#", link), link
    assert not [tag for tag, attributes in read(text).tags if "src" in attributes]
    assert "url(http" not in text
    (policy,) = [tags["content"] for _, tags in read(text).tags if tags.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")


def test_documents_can_be_taken_out_again() -> None:
    text = page.page("t", [], {"results.json": '{"a": "ä</script>"}'})
    (link,) = [tags["href"] for _, tags in read(text).tags if tags.get("download") == "results.json"]
    assert link is not None
    assert base64.b64decode(link.partition(",")[2]).decode() == '{"a": "ä</script>"}'


def test_a_row_that_is_too_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        page.page("t", [page.Section("s", [page.Table(["a", "b"], [["1"]])])], {})


def test_files_are_written_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for word in ("first", "second"):
        written = page.write(folder, word, sections("x"), {})
        assert written == [folder / "report.html", folder / "plots" / "bars.png"]
        assert f"<h1>{word}</h1>" in written[0].read_text(encoding="utf-8")
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        "plots",
        "plots/bars.png",
        "report.html",
    ]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.Error, match="make the folder plots of the report") as caught:
        page.write(tmp_path / "file", "t", sections("x"), {})
    assert "give another --output" in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"
