"""`coldsnap report` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.results import case, document, trace


def report(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coldsnap.cli", "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_draws_a_kept_file(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(document(case())))
    (tmp_path / "trace.json").write_text(json.dumps(trace()))
    flags = [str(tmp_path / "results.json"), f"--output={tmp_path / 'out'}"]
    done = report(*flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'out' / 'report.html'}, and 1 plots beside it\n"
    done = report(*flags, f"--trace={tmp_path / 'trace.json'}", "--json")
    assert done.returncode == 0, done.stderr
    names = ["report.html", "plots/hydrate-cold.png", "plots/timeline-1-buffered.png"]
    assert json.loads(done.stdout) == {"format": 1, "files": [str(tmp_path / "out" / name) for name in names]}
    assert all((tmp_path / "out" / name).stat().st_size > 1000 for name in names)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("not json", "Expecting value"),
        ("[]", "it is no JSON object"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "read the results"),
        ("{}", "the document is no results.json"),
    ],
)
def test_what_it_refuses(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    done = report(str(path), f"--output={tmp_path / 'out'}")
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_trace_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document(case())))
    done = report(str(path), f"--output={tmp_path / 'out'}", f"--trace={path}")
    assert done.returncode == 2
    assert "draw a trace: it is none" in done.stderr
    assert not (tmp_path / "out").exists()
