"""An engine for the matrix's tests: it logs, caches, captures and answers as vLLM does, in no time, and fails when told to.

``FAKE_VLLM`` is its plan, a JSON object; `LLM` says what may be in it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

__version__ = "0.32.0"


class SamplingParams:
    """What the matrix gives."""

    def __init__(self, *, temperature: float, max_tokens: int, ignore_eos: bool) -> None:
        assert temperature == 0
        assert ignore_eos
        self.max_tokens = max_tokens


class Output:
    """One answer, in vLLM's two layers."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.token_ids = tuple(token_ids)
        self.outputs = [self]


def plan(name: str, default: Any = None) -> Any:
    """What the test wants of this engine."""
    return json.loads(os.environ.get("FAKE_VLLM", "{}")).get(name, default)


def log(text: str) -> None:
    print(f"(EngineCore pid={os.getpid()}) INFO 11-30 05:27:09 [fake.py:1] {text}", flush=True)


class LLM:
    """Starts at once.

    Of the plan: ``dies`` and ``hangs`` name a load format; ``other`` one that answers with other tokens; ``captures``
    false keeps coldsnap from capturing, and ``restores`` is how often it restores; ``child`` is a file for the number of
    a process that it starts and leaves; ``processes`` is what vLLM's variable for that has to be.
    """

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        load_format = arguments["load_format"]
        assert plan("processes") in (None, os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"])
        log(f"Initializing a V1 LLM engine (v{__version__}) with config: {sorted(arguments)}")
        if load_format == plan("dies"):
            raise RuntimeError("the drive is on fire")
        if child := plan("child"):
            started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            pathlib.Path(child).write_text(str(started.pid))
        if load_format == plan("hangs"):
            time.sleep(600)
        log("Starting to load model m...")
        if load_format == "coldsnap":
            self._by_coldsnap()
        else:
            log("Loading weights took 0.00 seconds")
        log("Model loading took 1.0 GiB memory and 0.000500 seconds")
        log("GPU KV cache size: 1,048,576 tokens, Maximum concurrency for 1,024 tokens per request: 1024.00x")
        log("init engine (profile, create kv cache, warmup model) took 0.00 s")
        pathlib.Path(os.environ["VLLM_CACHE_ROOT"], "graphs").write_text("compiled")

    def generate(self, prompts: list[dict[str, Any]], sampling: SamplingParams, use_tqdm: bool) -> list[Output]:
        assert not use_tqdm
        return [Output(self.answer(prompt["prompt_token_ids"], sampling.max_tokens)) for prompt in prompts]

    def answer(self, prompt: Sequence[int], tokens: int) -> list[int]:
        shift = self.arguments["load_format"] == plan("other")
        return [(sum(prompt) + place + shift) % 500 for place in range(tokens)]

    def _by_coldsnap(self) -> None:
        shard = pathlib.Path(os.environ["COLDSNAP_STORE"], "shard-0")
        if shard.is_dir():
            restored = len(list(shard.parent.glob("restored-*")))
            if restored == plan("restores"):
                log("coldsnap: loading normally: the artifact in the store is under quarantine")
                return
            (shard.parent / f"restored-{restored}").touch()
            log("coldsnap: restored 4.0 GiB in 0.00 s (1.71 GB/s, route direct: cold) verified crc32+sha256")
            return
        log(f"coldsnap: loading normally: there is no artifact of this model in {shard.parent} yet")
        if plan("captures", True):
            shard.mkdir(parents=True)
            (shard / "payload").write_bytes(bytes(8192))
            log("coldsnap: captured 4.0 GiB in 2.24 s (1.92 GB/s, route direct); the next start restores")
