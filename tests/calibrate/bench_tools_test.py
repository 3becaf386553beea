"""The README's table and the import benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import import_time, table

README = "# x\n\n<!-- measured: r.json -->\nold\n<!-- /measured -->\n\nrest\n"


def results() -> dict[str, Any]:
    case = {
        "operation": "hydrate",
        "route": "direct",
        "cache": "cold",
        "digest": "crc32+sha256",
        "place": "host",
        "chunk_bytes": 64 << 20,
        "queue_depth": 2,
        "threads": 16,
        "samples_s": [0.25, 0.26, 0.24],
        "median_s": 0.25,
        "bytes_per_second": 2147483648,
        "ceiling": "raw_direct_read.t4",
        "ratio": 0.98,
        "limiting_stage": "read",
        "residency_before": [0.0, 0.0, 0.0],
    }
    machine = {"cpu": "CPU", "cores": 16, "memory_bytes": 128 << 30, "kernel": "6.1", "gpu": {"name": "GPU"}}
    return {
        "format": 1,
        "commit": "0123456789abcdef0123456789abcdef01234567-dirty",
        "machine": machine | {"file_system": "ext4"},
        "seed": 0,
        "payload_bytes": 512 << 20,
        "ceilings": [{"name": "raw_direct_read.t4", "unit": "bytes_per_second", "samples": [1], "median": 2191309845}],
        "cases": [case],
    }


def run(root: Path, *flags: str) -> int:
    return table.main(["table", f"--root={root}", "--pages=README.md", *flags])


def test_the_table_is_written_and_then_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(results()))
    (tmp_path / "README.md").write_text(README)
    assert run(tmp_path, "--check") == 1
    assert (tmp_path / "README.md").read_text() == README
    assert run(tmp_path) == 0
    text = (tmp_path / "README.md").read_text()
    row = "| direct | cold | crc32+sha256 | 64 MiB x 2, 16 | 2.15 | 98 % of 2.19 (raw direct read) | read |"
    assert row in text.splitlines()
    assert "GPU, 16 cores of CPU, 128 GiB, ext4, Linux 6.1; payload 512 MiB, commit 0123456789ab-dirty" in text
    assert text.startswith("# x\n\n<!-- measured: r.json -->\n")
    assert text.endswith("<!-- /measured -->\n\nrest\n")
    assert run(tmp_path, "--check") == 0
    assert run(tmp_path) == 0


def test_a_table_says_what_a_case_does_where_cases_do_different_things() -> None:
    document = results()
    (restore,) = document["cases"]
    small = restore | {"cache": "warm", "payload_bytes": 64 << 20, "extents": 4096, "ceiling": None, "ratio": None}
    capture = restore | {"operation": "capture", "cache": "new", "payload_bytes": 512 << 20, "extents": 32}
    document["cases"] = [restore, small, capture]
    lines = table.table(document).splitlines()
    assert lines[2] == "| what | route | cache | digest | chunk x depth, threads | GB/s | of its ceiling | limited by |"
    assert lines[4].startswith("| restore | direct | cold | ")
    assert lines[5].startswith("| restore, 4,096 extents of 64 MiB | direct | warm | ")
    assert lines[6].startswith("| capture | direct | new | ")
    assert [line.count("|") for line in lines[2:]] == [9] * 5
    document["cases"] = [restore, restore]
    assert table.table(document).splitlines()[2].startswith("| route | ")
    assert "payload 512 MiB, commit" in table.table(document)
    document["request"] = {"extents": 50000}
    assert "payload 512 MiB in 50,000 extents, commit" in table.table(document)


def test_captures_stand_beside_the_plain_writes_of_their_rounds() -> None:
    row = {"block_bytes": 1 << 20, "in_flight": 16, "plain_s": [1.0, 0.5, 3.0], "capture_host_s": [2.0, 4.0, 1.0]}
    document = {key: results()[key] for key in ("commit", "machine")} | {"payload_bytes": 2_000_000_000}
    document["rows"] = [row | {"capture_device_s": [0.8, 0.8, 0.8]}]
    lines = table.table(document).splitlines()
    assert lines[0].endswith("medians of 3 rounds.")
    assert lines[4] == "| 1 MiB x 16 | 2.00 | 1.00, 50 % | 2.50, 125 % |"


@pytest.mark.parametrize(
    ("readme", "stored", "says"),
    [
        ("no marker", "{}", "it has no marker"),
        (README, None, "read r.json: No such file"),
        (README, "{}", "it is no results.json"),
        (README, "not json", "it is no results.json"),
        (README, "[]", "it is no results.json"),
    ],
)
def test_what_it_refuses(tmp_path: Path, capsys: Any, readme: str, stored: str | None, says: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    if stored is not None:
        (tmp_path / "r.json").write_text(stored)
    assert run(tmp_path) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert len(stderr.splitlines()) == 1
    assert (tmp_path / "README.md").read_text() == readme


def test_an_index_lists_its_files_with_their_facts(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(results()))
    (tmp_path / "other.json").write_text('{"format": 1}')
    files = [
        {"file": "r.json", "kind": "calibration", "note": "`--x`"},
        {"file": "other.json", "kind": "k", "note": "n"},
    ]
    (tmp_path / "index.json").write_text(json.dumps({"format": 1, "files": files}))
    (tmp_path / "README.md").write_text(README.replace("r.json", "index.json"))
    assert run(tmp_path) == 0
    lines = (tmp_path / "README.md").read_text().splitlines()
    assert "| [r.json](r.json) | calibration | 512 MiB | 1 | 3 | 0123456789ab-dirty | `--x` |" in lines
    assert "| [other.json](other.json) | k | - | - | - | - | n |" in lines
    (tmp_path / "other.json").unlink()
    assert run(tmp_path) == 2


def test_every_old_page_is_named(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "r.json").write_text(json.dumps(results()))
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(README)
    assert run(tmp_path, "--pages=a.md,b.md", "--check") == 1
    said = capsys.readouterr().err
    assert "a.md differs" in said
    assert "b.md differs" in said


def test_import_time_keeps_its_samples(tmp_path: Path, capsys: Any) -> None:
    assert import_time.main(["import_time", "--samples=2", f"--output={tmp_path}"]) == 0
    assert "import coldsnap: " in capsys.readouterr().out
    document = json.loads((tmp_path / "import_time.json").read_text())
    assert [case["operation"] for case in document["cases"]] == ["pass", "import coldsnap"]
    assert [len(case["samples_s"]) for case in document["cases"]] == [2, 2]
    assert "torch" not in document["loaded"]


@pytest.mark.parametrize("flags", [["--samples=0"], ["--sample=3"], ["x"]])
def test_import_time_refuses_wrong_flags(capsys: Any, flags: list[str]) -> None:
    assert import_time.main(["import_time", *flags]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
