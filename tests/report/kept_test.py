"""The files of bench/results: each is listed, is what the list says, and keeps the schema of its kind."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldsnap._bench import compare, html
from tests.request import validator

KEPT = Path(os.environ["RUNFILES_ROOT"]) / "bench" / "results"


def read(name: str) -> Any:
    return json.loads((KEPT / name).read_text(encoding="utf-8"))


SCHEMA = read("schema.json")
FILES = {each["file"]: each["kind"] for each in read("index.json")["files"]}


def resolved(schema: Any) -> Any:
    """The schema with each reference replaced by what it names."""
    if isinstance(schema, list):
        return [resolved(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    return {key: resolved(value) for key, value in schema.items()}


def broken(kind: str, document: Any) -> set[tuple[str, str]]:
    return validator.broken(resolved(SCHEMA["$defs"][kind]), document)


def test_every_file_is_listed_once() -> None:
    there = {path.name for path in KEPT.glob("*.json")} - {"schema.json", "index.json"}
    assert set(FILES) == there
    assert len(read("index.json")["files"]) == len(FILES)
    assert broken("index", read("index.json")) == set()


@pytest.mark.parametrize("name", FILES)
def test_every_file_keeps_the_schema_of_its_kind(name: str) -> None:
    assert broken(FILES[name], read(name)) == set()


@pytest.mark.parametrize("name", FILES)
def test_no_file_tells_a_folder_of_its_machine(name: str) -> None:
    path = re.compile(r"(?<![\w./\]>*-])/(?:[\w.-]+/)+[\w.-]+")  # /a/b, and neither GB/s nor docs/a.md
    assert [found for text in texts_in(read(name)) for found in path.findall(text)] == []


def texts_in(value: Any) -> Iterator[str]:
    """All strings of a document, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts_in([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_of_another_kind_too(name: str) -> None:
    kinds = [kind["$ref"].removeprefix("#/$defs/") for kind in SCHEMA["anyOf"]]
    assert [kind for kind in kinds if not broken(kind, read(name))] == [FILES[name]]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("format", 2, "maximum"),
        ("commit", "main", "pattern"),
        ("machine.cores", 0, "minimum"),
        ("machine.gpu", {"name": "x"}, "required"),
        ("ceilings.0.unit", "GB/s", "enum"),
        ("ceilings.0.samples", [], "minItems"),
        ("cases.0.samples_s", [-1.0], "minimum"),
        ("cases.0.samples_s", ["1"], "type"),
        ("cases.0.chunk_bytes", 65537, "multipleOf"),
        ("cases.0.cache", "lukewarm", "enum"),
        ("cases.0.residency_before", [1.5], "maximum"),
        ("cases.0.ratio", "high", "type"),
    ],
)
def test_what_the_schema_refuses(path: str, value: Any, rule: str) -> None:
    document = copy.deepcopy(read("nvidia-h200.json"))
    where = document
    *folders, last = path.split(".")
    for part in folders:
        where = where[int(part) if part.isdigit() else part]
    where[last] = value
    assert {found for _, found in broken("calibration", document)} == {rule}


@pytest.mark.parametrize("key", ["commit", "machine", "ceilings", "cases"])
def test_what_has_to_be_there(key: str) -> None:
    document = read("nvidia-h200.json")
    del document[key]
    assert broken("calibration", document) == {(f"$.{key}", "required")}


def test_a_kept_calibration_is_not_told_apart_from_itself() -> None:
    """Real samples: where they lie close together that is the same, else unclear, and never anything more."""
    found = {}
    for name in (name for name, kind in FILES.items() if kind == "calibration"):
        found[name] = {row["verdict"] for row in compare.compare(read(name), read(name))}
    assert set().union(*found.values()) == {"same", "unclear"}
    assert found["nvidia-h200-warm.json"] == {"same"}


def test_what_a_calibration_writes_keeps_the_schema_and_can_be_drawn(tmp_path: Path) -> None:
    """On a machine without a GPU; `nvidia-h200.json` above is of one with a GPU."""
    flags = ["--bytes=2MiB", "--samples=1", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}"]
    command = [sys.executable, "-m", "coldsnap.cli", "calibrate", *flags, f"--trace={tmp_path / 'trace.json'}"]
    done = subprocess.run(
        command, env=dict(os.environ, HOME=str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert broken("calibration", document) == set()
    assert broken("trace", trace) == set()
    written = html.write(document, tmp_path / "report", trace)
    plots = {f"{case['operation']}-{case['cache']}.png" for case in document["cases"]}
    assert plots <= {path.name for path in written}
    assert "timeline-" in " ".join(path.name for path in written)
