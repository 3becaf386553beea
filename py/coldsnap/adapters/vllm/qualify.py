"""One start of vLLM in a process of its own, for `coldsnap.adapters.qualification`: what it says to the oracle's prompt.

    python3 -m coldsnap.adapters.vllm.qualify ORDER.json ANSWER.json

The answer has ``prompt``, ``tokens`` and ``logprob``, or ``error``. It appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def main(ordered: str, answered: str) -> None:
    """Do what is ordered, and say what came of it."""
    order = json.loads(Path(ordered).read_text(encoding="utf-8"))
    # In one process a failure is ours with its code; across processes it would be a sentence.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    try:
        answer = _answer(order["arguments"], order["tokens"])
    except Exception as failure:
        from coldsnap import receipts

        traceback.print_exc()
        answer = {"error": receipts.error_entry(_ours(failure))}
    scratch = Path(f"{answered}.part")
    scratch.write_text(json.dumps(answer), encoding="utf-8")
    os.replace(scratch, answered)


def _answer(arguments: dict[str, Any], tokens: int) -> dict[str, Any]:
    from vllm import LLM, SamplingParams  # as a user imports it

    from coldsnap.adapters import oracle
    from coldsnap.adapters.vllm import engine

    llm = LLM(**arguments)
    prompt = oracle.prompt(engine.vocabulary(llm.llm_engine))
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, logprobs=0)
    (request,) = llm.generate([{"prompt_token_ids": list(prompt)}], sampling, use_tqdm=False)
    said = request.outputs[0]
    logprobs = [step[token].logprob for token, step in zip(said.token_ids, said.logprobs, strict=True)]
    return {"prompt": prompt, "tokens": list(said.token_ids), "logprob": sum(logprobs)}


def _ours(failure: BaseException) -> BaseException:
    """The failure of coldsnap behind an engine's own, where there is one."""
    from coldsnap import errors

    found: BaseException | None = failure
    while found is not None and not isinstance(found, errors.Error):
        found = found.__cause__ or found.__context__
    return failure if found is None else found


if __name__ == "__main__":
    main(*sys.argv[1:])
