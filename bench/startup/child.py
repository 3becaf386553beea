"""One start of `vllm.LLM`, for `bench/engines/one_start.py`: when it got where, and what it answers.

Nothing of the engine is imported before it is asked for. Times are seconds on the monotonic clock, which all processes of
a machine share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

_STARTED_S = time.monotonic()


def run(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the engine, and ask it one prompt after the other.

    Args:
        order: ``engine`` (arguments of ``vllm.LLM``), ``prompts`` (lists of token ids), ``tokens`` (how many to answer).
    Yields:
        ``stamps``: ``started``, ``imported``, ``ready`` and ``first_token``; ``ttft_s``: seconds until the first token
        of each prompt; ``ids``: the tokens of each answer.
    """
    from vllm import LLM, SamplingParams

    stamps = {"started": _STARTED_S, "imported": time.monotonic()}
    engine = LLM(**order["engine"])
    stamps["ready"] = time.monotonic()

    def answer(prompt: list[int], tokens: int) -> list[int]:
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        (found,) = engine.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        return list(found.outputs[0].token_ids)

    ttft_s, ids = [], []
    for prompt in order["prompts"]:
        begin = time.monotonic()
        answer(prompt, 1)  # `LLM` doesn't stream: an answer of one token is what there is of a first one
        stamps.setdefault("first_token", time.monotonic())
        ttft_s.append(time.monotonic() - begin)
        ids.append(answer(prompt, order["tokens"]))
    yield {"stamps": stamps, "ttft_s": ttft_s, "ids": ids}
