"""One start of a real vLLM, for `one_start.py` beside it: what it takes for the weights, and what it answers.

Nothing of the engine is imported before it is asked for. Knows nothing of coldsnap: what is measured, every load format
has. Whoever starts it reads the engine's log, which it leaves on standard output and standard error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


def run(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the engine, ask it, and tell.

    Args:
        request: ``engine`` (arguments of ``vllm.LLM``), ``prompts`` (lists of token ids), ``tokens`` (how many to answer);
            ``image`` (rows of pixels of three values from 0 to 255), which every prompt shows, may be left out.
    Yields:
        ``import_s``, ``engine_s`` (the whole construction), ``version``, ``answers``: for each prompt the token ids and
        the log-probability of each.
    """
    begin = time.monotonic()
    import vllm
    from vllm import LLM, SamplingParams  # which is when most of it is imported, and its logging set up

    import_s = time.monotonic() - begin
    begin = time.monotonic()
    engine = LLM(**request["engine"])
    engine_s = time.monotonic() - begin
    sampling = SamplingParams(temperature=0, max_tokens=request["tokens"], ignore_eos=True, logprobs=0)
    shown = _shown(request.get("image"))
    prompts = [{"prompt_token_ids": ids, **shown} for ids in request["prompts"]]
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    yield {
        "version": vllm.__version__,
        "import_s": import_s,
        "engine_s": engine_s,
        "answers": [_answer(output.outputs[0]) for output in outputs],
    }


def _shown(image: list[list[list[int]]] | None) -> dict[str, Any]:
    if image is None:
        return {}
    from PIL import Image

    flat = bytes(value for row in image for pixel in row for value in pixel)
    return {"multi_modal_data": {"image": Image.frombytes("RGB", (len(image[0]), len(image)), flat)}}


def _answer(output: Any) -> dict[str, Any]:
    ids = list(output.token_ids)
    return {"ids": ids, "logprobs": [step[token].logprob for token, step in zip(ids, output.logprobs, strict=True)]}
