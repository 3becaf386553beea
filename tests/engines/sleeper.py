"""One start of a real vLLM whose weights go and come back: what is called, in its order, and what each call gave.

A step is ``["generate"]``, ``["call", METHOD, ARGUMENTS...]`` of ``vllm.LLM`` or ``["rpc", METHOD, ARGUMENTS...]`` of
every worker; a dictionary at the end of a call's arguments has those with a name. A step that fails is an answer, too, and
the answer is there after each step, by `bench/engines/one_start.py`. Nothing of the engine is imported before it is asked
for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any


def run(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the engine, do the steps, and tell after each.

    Args:
        request: ``engine`` (arguments of ``vllm.LLM``), ``prompts`` (lists of token ids), ``tokens`` (how many to answer),
            ``steps``.
    Yields:
        ``import_s``, ``engine_s``, ``version``, ``answers`` (of the first step that generates), ``steps``: for each its
        ``step``, ``seconds``, ``free_bytes`` of this process's GPU behind it, and ``answer`` or ``error``.
    """
    begin = time.monotonic()
    import vllm
    from vllm import LLM

    import_s = time.monotonic() - begin
    begin = time.monotonic()
    engine = LLM(**request["engine"])
    told: dict[str, Any] = {"version": vllm.__version__, "import_s": import_s, "engine_s": time.monotonic() - begin}
    steps: list[dict[str, Any]] = []
    for step in request["steps"]:
        steps.append(_done(engine, step, request))
        answers = next((each["answer"] for each in steps if each["step"] == ["generate"] and "answer" in each), [])
        yield {**told, "answers": answers, "steps": steps}


def _done(engine: Any, step: Sequence[Any], request: dict[str, Any]) -> dict[str, Any]:
    begin = time.monotonic()
    try:
        found: dict[str, Any] = {"answer": _one(engine, step, request)}
    except Exception as failure:  # the next steps may show what it left
        found = {"error": f"{type(failure).__name__}: {failure}"}
    return {"step": list(step), "seconds": time.monotonic() - begin, "free_bytes": _free_bytes(), **found}


def _free_bytes() -> int | None:
    """Of this process's GPU, where it has one; an engine in processes of its own has it there."""
    import torch

    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_initialized() else None


def _one(engine: Any, step: Sequence[Any], request: dict[str, Any]) -> Any:
    kind, *rest = step
    if kind == "generate":
        return _answers(engine, request)
    method, *arguments = rest
    if kind == "call":
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        getattr(engine, method)(*arguments, **named)
        return None
    return engine.collective_rpc(method, args=tuple(arguments))


def _answers(engine: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=request["tokens"], ignore_eos=True, logprobs=0)
    prompts = [{"prompt_token_ids": ids} for ids in request["prompts"]]
    outputs = [output.outputs[0] for output in engine.generate(prompts, sampling, use_tqdm=False)]
    return [{"ids": list(output.token_ids), "logprobs": _logprobs(output)} for output in outputs]


def _logprobs(output: Any) -> list[float]:
    return [step[token].logprob for token, step in zip(output.token_ids, output.logprobs, strict=True)]
