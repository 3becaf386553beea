"""A signal at any stage: the blob is gone, the exit code says which signal, and what was measured is kept and marked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.calibrate.helpers import calibrate, command, left_in

# What the run has done when the signal comes; each is seen in the file system, so none depends on a clock.
STAGES: dict[str, Callable[[Path], bool]] = {
    "folder": lambda folder: any(folder.glob("*/lock")),
    "blob": lambda folder: any(folder.glob("*/artifact")),
    "restores": lambda folder: any(folder.glob("*/artifact/artifact.json")),
    "results": lambda folder: (folder.parent / "out" / "results.json").exists(),
    "raw writes": lambda folder: any(folder.glob("*/raw-write")),
    "captures": lambda folder: any(folder.glob("*/capture")),
}
KEPT = "what was measured is in {}, marked as incomplete; go on with --resume"
COMPLETE = "the results were complete and are in {}"


def interrupted(tmp_path: Path, signum: int, ready: Callable[[], bool], *more: str) -> tuple[int, str]:
    """Start a calibration, send the signal once it is `ready`; give exit code and stderr."""
    drive = tmp_path / "drive"
    drive.mkdir(exist_ok=True)
    flags = ["--bytes=16MiB", "--samples=8", "--device=host", f"--path={drive}", f"--output={tmp_path / 'out'}"]
    flags += more or ["--noreport"]
    with subprocess.Popen(
        command(*flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test runner in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        until(lambda: ready() or process.poll() is not None)
        os.kill(process.pid, signum)
        _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def check_what_is_left(tmp_path: Path, stderr: str) -> dict[str, Any] | None:
    """Nothing but results that say whether they are complete, if there is anything; those that are not are given."""
    path = tmp_path / "out" / "results.json"
    if not path.exists():
        assert left_in(tmp_path) == ["drive"]
        assert stderr.endswith("; the blob is removed, no results were written\n")
        return None
    assert left_in(tmp_path) == ["drive", "out", "out/results.json"]
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kept = (COMPLETE if results["complete"] else KEPT).format(path)
    assert stderr.endswith(f"; the blob is removed, {kept}\n")
    if results["complete"]:  # it came when all was measured and written
        return None
    assert results["missing"]
    assert any(case["samples_s"] for case in results["cases"])
    return results


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_cleans_up(tmp_path: Path, stage: str, signum: signal.Signals) -> None:
    code, stderr = interrupted(tmp_path, signum, lambda: STAGES[stage](tmp_path / "drive"))
    assert code == 128 + signum
    assert stderr.startswith(f"coldsnap calibrate: interrupted by {signum.name}; ")
    kept = check_what_is_left(tmp_path, stderr)
    assert (kept is not None) >= (stage in ("results", "raw writes", "captures"))


@pytest.mark.parametrize("number", range(4))
def test_a_signal_at_any_moment_cleans_up(tmp_path: Path, number: int) -> None:
    moment = time.monotonic() + random.Random(number).uniform(0, 3)
    code, stderr = interrupted(tmp_path, signal.SIGTERM, lambda: time.monotonic() > moment)
    if code == 143:
        check_what_is_left(tmp_path, stderr)
    else:  # before Python had a handler for it, or after the end
        assert code in (-signal.SIGTERM, 0), stderr
        assert not list((tmp_path / "drive").iterdir())


def test_a_signal_while_the_page_is_drawn_leaves_the_complete_results(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.json"

    def complete() -> bool:
        return path.exists() and json.loads(path.read_text(encoding="utf-8"))["complete"]

    code, stderr = interrupted(tmp_path, signal.SIGTERM, complete, "--report", "--cache=warm", "--operations=hydrate")
    assert (code, complete()) == (143, True)
    assert stderr == f"coldsnap calibrate: interrupted by SIGTERM; the blob is removed, {COMPLETE.format(path)}\n"
    left = left_in(tmp_path)
    assert set(left) <= {"drive", "out", "out/results.json", "out/plots"}  # no file of the page in part


def test_an_interrupted_one_goes_on_with_its_samples(tmp_path: Path) -> None:
    _, stderr = interrupted(tmp_path, signal.SIGINT, lambda: STAGES["captures"](tmp_path / "drive"))
    before = check_what_is_left(tmp_path, stderr)
    assert before is not None
    done = {key(case): case["samples_s"] for case in before["cases"] if len(case["samples_s"]) == 8}
    assert done

    flags = ["--bytes=16MiB", "--samples=8", "--device=host", f"--path={tmp_path / 'drive'}"]
    flags += [f"--output={tmp_path / 'out'}", "--noreport", "--resume"]
    other = calibrate(*flags, "--seed=1")
    assert (other.returncode, other.stdout) == (2, "")
    assert "its seed was 0 and is 1 here; leave out --resume" in other.stderr
    other = calibrate(*flags, "--queue_depth=1")
    assert other.returncode == 2
    assert "its request.setting was " in other.stderr

    resumed = calibrate(*flags)
    assert resumed.returncode == 0, resumed.stderr
    assert "note: the samples are from 2 runs" in resumed.stdout
    after = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert (after["complete"], after["missing"], after["sittings"]) == (True, [], 2)
    found = {key(case): case["samples_s"] for case in after["cases"]}
    assert {name: found[name] for name in done} == done
    assert any(case["operation"] == "capture" for case in after["cases"])
    assert left_in(tmp_path) == ["drive", "out", "out/results.json"]

    again = calibrate(*flags)
    assert again.returncode == 2
    assert "it is complete; leave out --resume to begin anew" in again.stderr


def key(case: dict[str, Any]) -> str:
    return json.dumps([case[name] for name in (*list(case)[:8], "payload_bytes", "direct")])


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    flags = ("--bytes=64MiB", "--samples=3", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}")
    with subprocess.Popen(command(*flags), stdout=subprocess.DEVNULL) as process:
        until(lambda: STAGES["blob"](tmp_path) or process.poll() is not None)
        process.kill()
    assert len(list(tmp_path.glob("coldsnap-calibrate.*"))) == 1
    flags = ("--bytes=2MiB", "--samples=1", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}", "--noreport")
    assert subprocess.run(command(*flags), stdout=subprocess.DEVNULL, check=False, timeout=120).returncode == 0
    assert left_in(tmp_path) == ["results.json"]


def until(happened: Callable[[], bool]) -> None:
    """Wait until `happened`, at most two minutes."""
    for _ in range(24000):
        if happened():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen within two minutes")
