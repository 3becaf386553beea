"""One start of vLLM in a process of its own: ``child.py ORDER ANSWER``, both JSON files; `harness` writes and reads them.

Nothing is imported before ``main``: what vLLM reads of the environment, it reads at its import, and its own children
import this file again.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time


def main(order: str, answer: str) -> None:
    """Build the engine, generate greedily for each prompt, and leave token ids, log-probabilities and seconds."""
    asked = json.loads(pathlib.Path(order).read_text())
    begin = time.monotonic()
    from vllm import LLM, SamplingParams

    engine = LLM(**asked["engine"])
    ready_s = time.monotonic() - begin
    # What comes twice comes from a cache the second time, so a prompt is never asked twice.
    greedy = SamplingParams(temperature=0, max_tokens=asked["tokens"], ignore_eos=True, logprobs=0)
    prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
    done = [found.outputs[0] for found in engine.generate(prompts, greedy, use_tqdm=False)]
    text = json.dumps(
        {
            "outputs": [[list(found.token_ids), found.cumulative_logprob] for found in done],
            "ready_s": ready_s,
        }
    )
    scratch = pathlib.Path(f"{answer}.part")
    scratch.write_text(text)
    os.replace(scratch, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
