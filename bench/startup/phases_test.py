"""What a log says: real lines of vLLM 0.32 on a CPU, and of 0.26 on a GPU in the form that its source gives them."""

from __future__ import annotations

from typing import Any

import pytest

from bench.startup.phases import NAMES, Line, Mark, coldsnap_lines, marks_of, phases_of, reported_in

# One start of `LLM` with processes of its own, which captured; without what says nothing of time.
MULTIPROC = """\
4.693 W1130 05:27:40.316000 18653 torch/_library/triton.py:53] Triton not available, find_triton_kernels = []
4.784 (MainProcess pid=18653) INFO 11-30 05:27:40 [model.py:2152] Using max model len 1024
9.349 (EngineCore pid=18729) INFO 11-30 05:27:44 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'
14.331 (Worker pid=18737) INFO 11-30 05:27:49 [cpu_model_runner.py:68] Starting to load model m...
14.360 (Worker pid=18737) INFO 11-30 05:27:49 [loader.py:192] coldsnap: loading normally: there is no artifact of this model in s yet
14.436 (Worker pid=18737) INFO 11-30 05:27:50 [base_loader.py:82] Initializing model took 0.075825 seconds
14.442 Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 288.88it/s]
14.442 (Worker pid=18737) INFO 11-30 05:27:50 [default_loader.py:501] Loading weights took 0.01 seconds
14.954 (Worker pid=18737) INFO 11-30 05:27:50 [loader.py:212] coldsnap: captured 3.1 MiB in 0.03 s (0.0996 GB/s, route direct); the next start restores
14.966 (Worker pid=18737) INFO 11-30 05:27:50 [cpu_worker.py:260] Explicitly set (1.0/11.96) GiB for KV cache on node 0.
14.967 (EngineCore pid=18729) INFO 11-30 05:27:50 [kv_cache_utils.py:2327] CPU KV cache size: 1,048,576 tokens, Maximum concurrency for 1,024 tokens per request: 1024.00x
15.314 (EngineCore pid=18729) INFO 11-30 05:27:50 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.35 s"""

# Two ranks of 0.26 with graphs, restored; times made up.
GPU = """\
20.0 (EngineCore pid=9) INFO 11-30 05:27:44 [core.py:117] Initializing a V1 LLM engine (v0.26.0) with config: model='m'
30.0 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [gpu_model_runner.py:5251] Starting to load model m...
30.5 (Worker_TP1 pid=12) INFO 11-30 05:27:49 [gpu_model_runner.py:5251] Starting to load model m...
32.0 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [loader.py:212] coldsnap: restored 4.0 GiB in 1.25 s (1.71 GB/s, route direct: cold) verified crc32+sha256
32.5 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [gpu_model_runner.py:5348] Model loading took 4.0 GiB memory and 2.500000 seconds
33.0 (Worker_TP1 pid=12) INFO 11-30 05:27:49 [gpu_model_runner.py:5348] Model loading took 4.0 GiB memory and 2.600000 seconds
40.0 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [monitor.py:34] torch.compile took 5.50 s in total
41.0 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [gpu_worker.py:561] Available KV cache memory: 100.0 GiB
41.5 (EngineCore pid=9) INFO 11-30 05:27:49 [kv_cache_utils.py:2177] GPU KV cache size: 1,048,576 tokens
45.0 (Worker_TP0 pid=11) INFO 11-30 05:27:49 [gpu_model_runner.py:6845] Graph capturing finished in 3 secs, took 0.62 GiB
46.0 (EngineCore pid=9) INFO 11-30 05:27:49 [core.py:331] init engine (profile, create kv cache, warmup model) took 12.98 s (compilation: 5.50 s)"""

# The beginning of a server.
SERVER = """\
16.0 (APIServer pid=12491) INFO 11-30 05:47:11 [api_utils.py:347]        █     █     █▄   ▄█
16.1 (APIServer pid=12491) INFO 11-30 05:47:11 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
16.2 (APIServer pid=12491) INFO 11-30 05:47:11 [api_utils.py:347]   █▄█▀ █     █     █     █  model   model"""


def lines_of(text: str) -> list[Line]:
    return [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in text.splitlines()]


def spans(text: str, **stamps: Mark) -> dict[str, Any]:
    phases = phases_of(marks_of(lines_of(text), stamps))
    assert [phase["name"] for phase in phases] == list(NAMES)
    return {phase["name"]: (phase["start_s"], phase["end_s"], phase["source"]) for phase in phases}


CHILD = {
    "started": Mark(0.03, "child"),
    "imported": Mark(4.7, "child"),
    "ready": Mark(15.6, "child"),
    "first_token": Mark(15.64, "child"),
}


def test_a_start_on_a_cpu() -> None:
    assert spans(MULTIPROC, **CHILD) == {
        "interpreter": (0.0, 0.03, "child + spawn"),
        "imports": (0.03, 4.7, "child"),
        "config": (4.7, 9.349, "child + log"),
        "workers": (9.349, 14.331, "log"),
        "build": (14.331, pytest.approx(14.432), "log + log's seconds"),
        "weights": (pytest.approx(14.432), 14.442, "log + log's seconds"),
        # A CPU's worker does not say when it has processed the weights, so nothing is said of this and of what follows.
        "post_processing": (None, None, None),
        "profiling": (None, None, None),
        "graphs": (None, None, None),
        "warm_up": (14.967, 15.314, "log"),
        "ready": (15.314, 15.6, "child + log"),
        "first_token": (15.6, 15.64, "child"),
    }
    assert reported_in(lines_of(MULTIPROC)) == {"build_s": 0.075825, "weights_s": 0.01, "init_s": 0.35}
    assert coldsnap_lines(lines_of(MULTIPROC)) == [
        "coldsnap: loading normally: there is no artifact of this model in s yet",
        "coldsnap: captured 3.1 MiB in 0.03 s (0.0996 GB/s, route direct); the next start restores",
    ]


def test_a_start_with_ranks_and_graphs() -> None:
    found = spans(GPU, imported=Mark(16.0, "log"), ready=Mark(47.0, "health"), first_token=Mark(47.5, "stream"))
    assert found["interpreter"] == (None, None, None)
    assert found["imports"] == (0.0, 16.0, "log + spawn")
    assert found["workers"] == (20.0, 30.0, "log")  # until the first rank began
    assert found["build"] == (30.0, 30.75, "log + log's seconds")
    assert found["weights"] == (30.75, 32.0, "log + log's seconds")
    assert found["post_processing"] == (32.0, 33.0, "log")  # until the last rank was done
    assert found["profiling"] == (33.0, 41.5, "log")
    assert found["graphs"] == (41.5, 45.0, "log")
    assert found["warm_up"] == (45.0, 46.0, "log")
    assert found["first_token"] == (47.0, 47.5, "health + stream")
    assert reported_in(lines_of(GPU)) == {
        "restore_s": 1.25,
        "loading_s": 2.6,
        "compile_s": 5.5,
        "graphs_s": 3.0,
        "init_s": 12.98,
    }


@pytest.mark.parametrize(
    "line", ["1.0 x] vLLM server version 0.32.0, serving model m", "1.0 x] vLLM API server version 0.24.0"]
)
def test_a_server_has_imported_when_its_banner_comes(line: str) -> None:
    assert marks_of(lines_of(SERVER), {})["imported"] == Mark(16.1, "log")
    assert marks_of(lines_of(line), {})["imported"] == Mark(1.0, "log")


def test_a_log_that_says_nothing() -> None:
    assert set(spans("", ready=Mark(3.0, "health"), first_token=Mark(3.5, "stream")).values()) == {
        (None, None, None),
        (3.0, 3.5, "health + stream"),
    }
    assert reported_in([]) == {}


def test_seconds_longer_than_the_start_itself() -> None:
    marks = marks_of([(2.0, "Loading weights took 2.004 seconds"), (1.9, "Starting to load model m...")], {})
    assert marks["weights_begun"].s == 0.0
    phases = {phase["name"]: phase for phase in phases_of(marks)}
    assert (phases["build"]["start_s"], phases["build"]["end_s"]) == (1.9, 1.9)
