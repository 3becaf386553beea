"""A small calibration from flags to results.json; every shape is checked, no time is."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.calibrate.helpers import SMALL, calibrate, command, left_in

CASE_KEYS = [
    *("operation", "route", "cache", "digest", "place", "chunk_bytes", "queue_depth", "threads", "samples_s"),
    *("median_s", "bytes_per_second", "ceiling", "ratio", "limiting_stage", "residency_before"),
    *("payload_bytes", "extents", "direct", "asked", "processors"),
]
KEYS = [
    *("format", "commit", "machine", "seed", "payload_bytes", "ceilings", "cases", "complete", "missing", "left_out"),
    *("sittings", "request", "trials", "drive", "recommendation"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path, Path]:
    """One calibration of 8 MiB with an unaligned end, a chunk larger than the small extents and depth 2."""
    path, output = tmp_path_factory.mktemp("drive"), tmp_path_factory.mktemp("out") / "new" / "folder"
    flags = ("--bytes=8388611", "--samples=3", "--device=host", "--chunk_bytes=1MiB", "--queue_depth=2", "--seed=5")
    return calibrate(*flags, f"--path={path}", f"--output={output}"), path, output


def test_it_ends_well_and_leaves_only_the_results_and_their_page(run: Any) -> None:
    done, path, output = run
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where stderr is no terminal
    assert left_in(path) == []
    left = left_in(output)
    plots = [name for name in left if name.startswith("plots/")]
    assert left == ["plots", *plots, "report.html", "results.json"]
    assert {"plots/hydrate-warm.png", "plots/capture-new.png"} <= set(plots)
    assert f"page: {output / 'report.html'}, and {len(plots)} plots beside it" in done.stdout.splitlines()
    (offered,) = re.findall(r'href="data:application/json;base64,([^"]+)"', (output / "report.html").read_text())
    assert json.loads(base64.b64decode(offered)) == json.loads((output / "results.json").read_text())


def test_the_output_says_what_is_measured_and_fits_80_columns(run: Any) -> None:
    done, _, output = run
    lines = done.stdout.splitlines()
    assert lines[0] == "measuring host memory (asked for by --device=host)"
    assert re.fullmatch(r"best route here: (direct|buffered) when .*; results: .*results\.json", lines[-1])
    assert str(output) in lines[-1]
    assert "\x1b" not in done.stdout
    free = ("note:", "folder:", "page:", "best route here:")  # they have a path, or a sentence
    assert [line for line in lines if len(line) > 80 and not line.startswith(free)] == []
    assert "every restore was verified, and compared with its source; took " in done.stdout


def test_results_have_the_fixed_shape(run: Any) -> None:
    text = (run[2] / "results.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    results = json.loads(text)
    assert list(results) == KEYS
    assert (results["complete"], results["missing"], results["sittings"]) == (True, [], 1)
    assert (results["format"], results["seed"], results["payload_bytes"]) == (1, 5, 8388611)
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|[0-9]+\.[0-9]+\.[0-9]+\S*", results["commit"])
    assert results["machine"]["cores"] >= 1
    assert results["machine"]["gpu"] is None
    for ceiling in results["ceilings"]:
        assert list(ceiling) == ["name", "unit", "samples", "median"]
        assert min(ceiling["samples"]) >= 0
        if ceiling["name"].startswith("ring_ready."):
            assert ceiling["unit"] == "seconds"
            continue
        assert ceiling["unit"] == "bytes_per_second"
        assert len(ceiling["samples"]) == 3
        assert ceiling["median"] == round(statistics.median(ceiling["samples"]))
    names = [ceiling["name"] for ceiling in results["ceilings"]]
    assert len(set(names)) == len(names)
    assert names.count("ring_ready.1048576x2") == 1
    assert {"page_cache_read.t1", "memory_copy.t1", "crc32.t1", "sha256t.t1"} <= set(names)
    medians = {ceiling["name"]: ceiling["median"] for ceiling in results["ceilings"]}
    for case in results["cases"]:
        check_case(case, results["payload_bytes"], medians)


def check_case(case: dict[str, Any], payload_bytes: int, medians: dict[str, int]) -> None:
    """Check one entry of `cases` against the shape and against itself."""
    assert list(case) == CASE_KEYS
    assert case["operation"] in ("hydrate", "capture")
    assert case["route"] in ("auto", "buffered", "direct")
    assert case["cache"] in (("cold", "warm", "half", "mixed") if case["operation"] == "hydrate" else ("new",))
    assert case["digest"] in ("none", "crc32", "crc32+sha256")
    assert case["place"] == "host"
    # The setting that was asked for, but what restores do by themselves and captures have no name for.
    if case["operation"] == "hydrate" and case["threads"] != 8:
        assert (case["chunk_bytes"], case["queue_depth"]) == (1 << 20, 2)
    assert case["threads"] >= 1
    assert len(case["samples_s"]) == len(case["residency_before"]) == 3
    assert case["median_s"] == pytest.approx(statistics.median(case["samples_s"]), abs=2e-6)
    assert case["payload_bytes"] in (payload_bytes, 64 << 14)  # the main blob, and an eighth of it in small extents
    assert case["bytes_per_second"] == pytest.approx(case["payload_bytes"] / case["median_s"], rel=0.01)
    if case["cache"] == "half":
        assert case["ratio"] is case["ceiling"] is None
        assert all(0.4 <= fraction <= 0.6 for fraction in case["residency_before"])
    else:
        assert case["ratio"] == pytest.approx(case["bytes_per_second"] / medians[case["ceiling"]], rel=0.01)
    assert isinstance(case["limiting_stage"], str)
    assert all(0 <= fraction <= 1 for fraction in case["residency_before"])
    if case["cache"] == "cold":
        assert max(case["residency_before"]) <= 0.001
    if case["cache"] == "warm":
        assert min(case["residency_before"]) >= 0.999


def test_each_route_that_works_has_each_cache_state_and_digest(run: Any) -> None:
    results = json.loads((run[2] / "results.json").read_text(encoding="utf-8"))
    whole = [case for case in results["cases"] if case["payload_bytes"] == results["payload_bytes"]]
    captures = {(case["route"], case["digest"]) for case in whole if case["operation"] == "capture"}
    restores = [case for case in whole if case["operation"] == "hydrate"]
    rows = {(case["route"], case["digest"]) for case in restores}
    routes = {"buffered"} if "direct does not work here" in run[0].stdout else {"buffered", "direct"}
    # A state that could not be proved is called mixed, and is still a row.
    assert rows == {("auto", "crc32")} | {(route, d) for route in routes for d in ("none", "crc32", "crc32+sha256")}
    full = [(case["route"], case["asked"]["cache"]) for case in restores if case["digest"] == "crc32+sha256"]
    assert set(full) == {(route, state) for route in routes for state in ("cold", "warm")}
    assert captures == {(route, "crc32+sha256") for route in routes}


def test_small_extents_are_a_part_of_every_calibration(run: Any) -> None:
    results = json.loads((run[2] / "results.json").read_text(encoding="utf-8"))
    small = [case for case in results["cases"] if case["payload_bytes"] != results["payload_bytes"]]
    assert {(case["extents"], case["digest"]) for case in small} == {
        (64, digest) for digest in ("none", "crc32", "crc32+sha256")
    }
    assert "64 x 16K" in run[0].stdout


def test_each_state_has_a_recommendation_with_its_reason(run: Any) -> None:
    results = json.loads((run[2] / "results.json").read_text(encoding="utf-8"))
    found = {(entry["operation"], entry["cache"]): entry for entry in results["recommendation"]}
    assert ("capture", "new") in found
    assert {"warm"} <= {cache for _, cache in found}
    for entry in found.values():
        assert entry["why"]
        assert f"\n  {entry['why'].partition('; ')[0]}\n" in run[0].stdout


def test_results_name_no_path_and_no_host(run: Any) -> None:
    text = (run[2] / "results.json").read_text(encoding="utf-8")
    assert not re.search(r'"/|[ (]/[a-z]', text)
    assert str(run[1]) not in text
    assert os.uname().nodename not in re.findall(r'"([^"]*)"', text)


def test_a_trace_has_the_threads_of_every_route(tmp_path: Path) -> None:
    done = calibrate(*SMALL, f"--path={tmp_path}", f"--output={tmp_path}", f"--trace={tmp_path / 'trace.json'}")
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"read", "digest", "send", "publish"} <= names
    assert json.loads((tmp_path / "results.json").read_text())["trace"]["traceEvents"] == events
    assert "note: trace.json has a trace" in done.stdout


def test_small_extents_of_one_size(tmp_path: Path) -> None:
    done = calibrate(*SMALL, "--extents=300", f"--path={tmp_path}", f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert ", 300 extents" in done.stdout
    assert "no profile was written" in done.stdout


def test_relative_paths_start_where_the_user_is(tmp_path: Path) -> None:
    (tmp_path / "drive").mkdir()
    done = calibrate(*SMALL, "--noreport", "--path=drive", "--output=out", BUILD_WORKING_DIRECTORY=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert left_in(tmp_path) == ["drive", "out", "out/results.json"]


def test_without_path_the_cache_folder_is_used_and_named(tmp_path: Path) -> None:
    done = calibrate(*SMALL, XDG_CACHE_HOME=str(tmp_path / "c"), COLDSNAP_STATE_DIR=str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr
    left = [name for name in left_in(tmp_path / "s") if "/plots" not in name]
    shown = ["calibration/report.html", "calibration/results.json"]
    assert left == [".lock", "calibration", *shown, "profile.json"]
    assert "folder: " in done.stdout


def test_the_sweep_adds_a_grid(tmp_path: Path) -> None:
    flags = ("--bytes=2MiB", "--samples=1", "--device=host", "--sweep", f"--path={tmp_path}", f"--output={tmp_path}")
    done = calibrate(*flags)
    assert done.returncode == 0, done.stderr
    cases = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["cases"]
    settings = {(case["chunk_bytes"], case["queue_depth"], case["threads"]) for case in cases}
    assert len(settings) >= 12
    swept = {(case["operation"], case["route"], case["digest"]) for case in cases if case["chunk_bytes"] == 16 << 20}
    assert ("capture", "direct", "crc32+sha256") in swept
    assert ("hydrate", "buffered", "none") in swept
    assert max(chunk * depth for chunk, depth, _ in settings) <= 512 << 20


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_a_bar_and_no_color_is_honoured(tmp_path: Path, no_color: bool) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm-256color"}
    if no_color:
        environment["NO_COLOR"] = "1"
    master, slave = pty.openpty()
    flags = ("--bytes=2MiB", "--samples=1", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}")
    with subprocess.Popen(command(*flags), env=environment, stdout=slave, stderr=slave) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0, seen
    assert b"restore" in seen
    assert bool(re.search(rb"\x1b\[[0-9;]*3[0-9]", seen)) is not no_color


def test_minutes_are_spent_on_a_search(tmp_path: Path) -> None:
    flags = (
        "--bytes=4MiB",
        "--device=host",
        "--minutes=0.5",
        f"--path={tmp_path}",
        f"--output={tmp_path}",
        "--noreport",
    )
    done = calibrate(*flags)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["request"]["minutes"] == 0.5
    assert ", at most 0.5 minutes" in done.stdout
    assert f"note: the search tried {len(results['trials'])} settings" in done.stdout
    kinds = {(trial["operation"], trial["route"], trial["asked"]["cache"]) for trial in results["trials"]}
    assert ("hydrate", "buffered", "warm") in kinds
    assert ("capture", "direct", "new") in kinds
    assert min(len(trial["samples_s"]) for trial in results["trials"]) >= 1
    assert left_in(tmp_path) == ["results.json"]


def test_minutes_that_do_not_suffice_are_said(tmp_path: Path) -> None:
    flags = ("--bytes=64MiB", "--device=host", "--minutes=0.05", f"--path={tmp_path}", f"--output={tmp_path}")
    done = calibrate(*flags)
    if done.returncode == 0:
        results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
        assert (results["complete"], bool(results["left_out"])) == (True, True)
        assert "note: no time for " in done.stdout
    else:
        assert done.returncode == 2
        assert "calibrate within 0.05 minutes: " in done.stderr
        assert left_in(tmp_path) == []
