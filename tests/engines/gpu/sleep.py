"""Question: does an engine that slept at level 2 come back by the hydrator as it was, and what does each way cost?

    python3 tests/engines/gpu/sleep.py --model MODEL --output sleep.json

A plain program for a machine with a GPU, vLLM and the wheel. Each way back is a start of its own (``--ways``); all answer
the same prompts before and after, and every answer has to be that of the start that loaded normally and captured. The
document has what each step gave or why it failed, its seconds, and the GPU's free memory behind it.

Ends with 0 if all answers are equal, 4 if one differs, 5 if a step or a start failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
_SLEEPER = [str(_ROOT / name) for name in ("bench/engines/one_start.py", "tests/engines/sleeper.py")]
_PROMPTS = [[11, 22, 33, 44, 55, 66, 77], [101, 3, 5, 8, 13, 21, 34, 55, 89]]
_TOKENS = 16
_LIMIT_S = 240  # of one start with all of its steps
_EXTENSION = "coldsnap.adapters.vllm.worker.WorkerExtension"

_ASK, _SLEEP, _WAKE = ["generate"], ["call", "sleep", {"level": 2}], ["call", "wake_up"]
_WAKE_WEIGHTS, _WAKE_CACHE = [*_WAKE, {"tags": ["weights"]}], [*_WAKE, {"tags": ["kv_cache"]}]
_RELEASE, _HYDRATE, _VERIFY = (["rpc", f"coldsnap_{name}"] for name in ("release", "hydrate", "verify"))
_RELOAD = ["rpc", "reload_weights"]
# Of each way: the load format, and what is done.
_WAYS: dict[str, tuple[str, list[list[Any]]]] = {
    "capture": ("coldsnap", [_ASK, _VERIFY]),
    "hydrate": ("coldsnap", [_ASK, _SLEEP, _WAKE_WEIGHTS, _HYDRATE, _VERIFY, _WAKE_CACHE, _ASK] * 2),
    "hydrate-asleep": ("coldsnap", [_ASK, _SLEEP, _HYDRATE, _VERIFY, _WAKE, _ASK] * 2),
    "release": ("coldsnap", [_ASK, _RELEASE, _HYDRATE, _VERIFY, _ASK]),
    "reload": ("auto", [_ASK, _SLEEP, _WAKE_WEIGHTS, _RELOAD, _WAKE_CACHE, _ASK]),
}


def main() -> int:
    """Do each way, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a checkpoint's folder")
    parser.add_argument("--output", type=Path, required=True, help="the document, JSON")
    parser.add_argument("--ways", default=",".join(_WAYS), help="commas between them; capture comes first")
    parser.add_argument("--engine", default="{}", help="more arguments of vllm.LLM, as JSON")
    parser.add_argument("--scratch", type=Path, help="where the store lies meanwhile (beside the model)")
    asked = parser.parse_args()
    ways = ["capture", *(way for way in asked.ways.split(",") if way != "capture")]
    with tempfile.TemporaryDirectory(dir=asked.scratch or asked.model.resolve().parent) as scratch:
        found: dict[str, Any] = {}
        for way in ways:
            found[way] = _start(way, asked.model, json.loads(asked.engine), Path(scratch))
            print(_line(way, found[way]), flush=True)
            asked.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return _judge(found)


def _start(way: str, model: Path, engine: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """One engine; what it told, what was in its log of ours, and ``out`` with the end of its log after a failure."""
    load_format, steps = _WAYS[way]
    arguments = {
        "model": str(model),
        "load_format": load_format,
        "enable_sleep_mode": True,
        "enable_prefix_caching": False,
        "worker_extension_cls": _EXTENSION,
        "enforce_eager": True,
        "max_model_len": 512,
        **engine,
    }
    request, told = scratch / "request.json", scratch / f"{way}.json"
    request.write_text(json.dumps({"engine": arguments, "prompts": _PROMPTS, "tokens": _TOKENS, "steps": steps}))
    command = [sys.executable, *_SLEEPER, str(request), str(told)]
    with (scratch / f"{way}.log").open("w+", errors="replace") as log:
        try:
            status = subprocess.run(
                command, env=_environment(scratch), stdout=log, stderr=log, timeout=_LIMIT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
        log.seek(0)
        lines = log.read().splitlines()
    found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {"steps": []}
    found |= {"status": status, "lines": [line for line in lines if "coldsnap: " in line]}
    whole = status == 0 and len(found["steps"]) == len(steps)
    return found if whole else {**found, "out": lines[-60:]}


def _environment(scratch: Path) -> dict[str, str]:
    return {
        **os.environ,
        "COLDSNAP_STORE": str(scratch / "store"),
        "COLDSNAP_STATE_DIR": str(scratch / "state"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }


def _line(way: str, found: dict[str, Any]) -> str:
    parts = [f"{' '.join(map(str, each['step']))} {each['seconds']:.2f} s" for each in found["steps"]]
    failures = [each["error"] for each in found["steps"] if "error" in each]
    return "\n  ".join([f"{way}: status {found['status']}", *parts, *found["lines"], *failures, *found.get("out", [])])


def _judge(found: dict[str, Any]) -> int:
    expected = found["capture"].get("answers")
    said = [(way, each["answer"]) for way, one in found.items() for each in one["steps"] if _answered(each)]
    wrong = [way for way, answer in said if answer != expected]
    unequal = [way for way, one in found.items() for each in one["steps"] if not _all_equal(each)]
    failed = [way for way, one in found.items() if "out" in one or any("error" in each for each in one["steps"])]
    print(f"{len(said)} answers, of which differ: {wrong}; weights that differ: {unequal}; failed: {failed}")
    return 4 if wrong or unequal or not expected else 5 if failed else 0


def _answered(step: dict[str, Any]) -> bool:
    return step["step"] == _ASK and "answer" in step


def _all_equal(step: dict[str, Any]) -> bool:
    """Whether weights that were verified in a step were the captured ones, in every rank."""
    return step["step"] != _VERIFY or all(rank["equal"] for rank in step.get("answer", []))


if __name__ == "__main__":
    sys.exit(main())
