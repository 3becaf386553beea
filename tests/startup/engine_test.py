"""The matrix over the real engine on a CPU, with the tiny model that it makes itself: all six cases, and coldsnap's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.startup.cells import CASES
from bench.startup.process import members_of

_LIMIT_S = 600
# What a small machine without a GPU needs, and nothing of the caller's but where programs are.
_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": os.environ["PYTHONPATH"],
    "PYTHONSAFEPATH": "1",
    "RUNFILES_ROOT": os.environ["RUNFILES_ROOT"],
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "WHEEL": os.environ["WHEEL"],
}
_ENGINE = {"enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 4}


def command(folder: Path, *flags: str) -> list[str]:
    program = Path(os.environ["RUNFILES_ROOT"], "bench", "vllm_startup_matrix.py")
    given = [f"--output={folder / 'out'}", f"--engine={json.dumps(_ENGINE)}", "--repeats=1", "--caches=cold", *flags]
    return [sys.executable, str(program), *given]


def document(folder: Path) -> dict[str, Any]:
    """What a run wrote, which left nothing else in its home."""
    assert list(folder.rglob("coldsnap-calibrate.*")) == []
    found: dict[str, Any] = json.loads((folder / "out" / "startup_matrix.json").read_text())
    return found


def matrix(folder: Path, *flags: str) -> dict[str, Any]:
    """Run one, and give its document; the folder is the home of the run."""
    variables = {**_VARIABLES, "HOME": str(folder)}
    done = subprocess.run(
        command(folder, *flags), env=variables, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = document(folder)
    assert found["complete"]
    return found


def phases_in(start: dict[str, Any]) -> set[str]:
    return {phase["name"] for phase in start["phases"] if phase["start_s"] is not None}


def test_all_six_cases(tmp_path: Path) -> None:
    found = matrix(tmp_path, "--formats=auto", "--cases", *CASES)
    assert [start["case"] for start in found["starts"]] == list(CASES)
    # What no CPU logs is left out, whatever the topology.
    common = {"imports", "config", "workers", "build", "weights", "warm_up", "ready", "first_token"}
    for start in found["starts"]:
        assert start["out"] is None
        served = start["case"].startswith("serve")
        assert phases_in(start) == common | (set() if served else {"interpreter"}), start["case"]
        moments = [mark["s"] for mark in start["marks"].values()]
        assert moments == sorted(moments)
        assert start["marks"]["ready"]["source"] == ("health" if served else "child")
        assert {"weights_s", "init_s"} <= set(start["reported"])
        assert sum(each["files"] for each in start["caches_before"].values()) == 0
        assert start["caches_after"]["VLLM_CACHE_ROOT"]["files"] > 0
        assert start["residency_before"] == [1.0]
    # One model, one answer: by whatever topology, and with the towers that a text has no use for.
    answers = [start["ids"] for start in found["starts"]]
    assert answers == [answers[0]] * len(CASES)
    assert len({tuple(ids) for ids in answers[0]}) == len(answers[0])


def test_coldsnap_beside_the_normal_loader(tmp_path: Path) -> None:
    found = matrix(tmp_path, "--formats=auto,coldsnap", "--cases=inproc-text", "--pages=cold")
    captured, on_probation, auto, ours = found["starts"]
    assert [each["kind"] for each in found["starts"]] == ["prepare", "prepare", "sample", "sample"]
    assert captured["lines"][-1].startswith("coldsnap: captured ")
    assert on_probation["lines"][0].startswith("coldsnap: restored ")
    assert " is qualified: " in on_probation["lines"][1]
    (line,) = ours["lines"]
    assert line.startswith("coldsnap: restored ")
    assert auto["lines"] == []
    assert ours["ids"] == auto["ids"]
    assert "weights" in phases_in(ours)
    assert len(ours["residency_before"]) > 1  # the checkpoint, and the artifact
    assert max(ours["residency_before"]) <= 0.001


def test_an_interrupt_ends_the_server_and_its_engine(tmp_path: Path) -> None:
    flags = ("--formats=auto", "--cases=serve-full")
    with subprocess.Popen(
        command(tmp_path, *flags),
        env={**_VARIABLES, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        said = b""
        while b"start 1: " not in said:
            more = process.stdout.read(1)
            assert more, (said, process.communicate()[1])  # it has ended before
            said += more
        # It says so before it brings the page cache into its state and spawns the server. That one then has the engine's
        # process, and one of Python's that watches over shared memory.
        while not (servers := children_of(process.pid)) or len(members_of(servers[0])) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        (server,) = servers
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 128 + signal.SIGINT, stderr
    assert members_of(server) == []
    found = document(tmp_path)
    assert (found["complete"], found["ended"], found["starts"]) == (False, "interrupted by SIGINT", [])


def children_of(pid: int) -> list[int]:
    """Those that the main thread of a process has started and not waited for."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
