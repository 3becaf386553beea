"""The page beside results.json: by default where matplotlib is, else one line; never in the way of the results."""

from __future__ import annotations

import json
from pathlib import Path

from tests.calibrate.helpers import calibrate, left_in, without_matplotlib

FLAGS = ("--bytes=2MiB", "--samples=1", "--device=host", "--cache=warm", "--operations=hydrate")
REMEDY = "pip install 'coldsnap[report]'"


def test_no_page_where_none_is_wanted(tmp_path: Path) -> None:
    done = calibrate(*FLAGS, "--noreport", f"--path={tmp_path}", f"--output={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith(("page:", "no page"))] == []
    assert left_in(tmp_path) == ["results.json"]


def test_without_matplotlib_a_line_says_so_and_how_to_get_it(tmp_path: Path) -> None:
    done = without_matplotlib(*FLAGS, f"--path={tmp_path}", f"--output={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"no page with plots: matplotlib is not installed; {REMEDY}" in done.stdout.splitlines()
    assert left_in(tmp_path) == ["results.json"]


def test_a_page_that_was_asked_for_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    done = without_matplotlib(*FLAGS, "--report", f"--path={tmp_path}", f"--output={tmp_path}")
    assert (done.returncode, done.stdout, left_in(tmp_path)) == (3, "", [])
    assert done.stderr.startswith("coldsnap calibrate: draw the page of --report: matplotlib is not installed")
    assert REMEDY in done.stderr


def test_a_page_that_cannot_be_written_fails_only_who_asked_for_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "plots").write_text("a file where the folder of the plots would be")
    flags = (*FLAGS, f"--path={tmp_path}", f"--output={out}")
    done = calibrate(*flags)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("no page with plots: ")]
    assert f"make the folder plots of the report in {out}" in line
    assert "give another --output" in line
    assert done.stdout.splitlines()[-1].startswith("best route here: ")
    done = calibrate(*flags, "--report")
    assert done.returncode == 3
    assert f"make the folder plots of the report in {out}" in done.stderr
    assert json.loads((out / "results.json").read_text())["complete"] is True
    assert left_in(out) == ["plots", "results.json"]
