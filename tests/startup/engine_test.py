"""The matrix over the real engine on a CPU, with the tiny model that it makes itself: all six cases, and coldsnap's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.startup.cells import CASES

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


def matrix(folder: Path, *flags: str) -> dict[str, Any]:
    """Run one, and give its document; the folder is the home of the run."""
    program = Path(os.environ["RUNFILES_ROOT"], "bench", "vllm_startup_matrix.py")
    given = [f"--output={folder / 'out'}", f"--engine={json.dumps(_ENGINE)}", "--repeats=1", "--caches=cold", *flags]
    done = subprocess.run(
        [sys.executable, str(program), *given],
        env={**_VARIABLES, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    left = [path for path in folder.rglob("coldsnap-calibrate.*")]
    assert left == []
    document: dict[str, Any] = json.loads((folder / "out" / "startup_matrix.json").read_text())
    assert document["complete"]
    return document


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
    assert on_probation["lines"][-1].startswith("coldsnap: restored ")
    assert ours["lines"][-1].startswith("coldsnap: restored ")
    assert auto["lines"] == []
    assert ours["ids"] == auto["ids"]
    assert "weights" in phases_in(ours)
    assert len(ours["residency_before"]) > 1  # the checkpoint, and the artifact
    assert max(ours["residency_before"]) <= 0.001
