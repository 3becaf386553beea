"""vLLM's engine core once it is built, before it says that it is ready: who is told, and how it is asked.

Beside `coldsnap.adapters.vllm.compat`, the other place that knows names of vLLM which change: where one is not there,
nobody is told, and nothing else changes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from coldsnap import errors

_REQUEST = "coldsnap-oracle"
_MOST_STEPS = 1000
_MARK = "_coldsnap_told"
_WEIGHTS = "weights"  # the tag of their memory, in sleep mode


def when_built(tell: Callable[[Any], None]) -> bool:
    """Have ``tell`` called with each engine core of this process that is built from now on, before it is ready.

    The plugin may be loaded by the core's own constructor, which is running then. So what is exchanged is what the
    constructor calls later: a method in the middle, which knows the core, and the function near its end that freezes the
    heap, by when all is there.

    Returns:
        Whether this version of vLLM has both.
    """
    from vllm.v1.engine import core

    kind = core.EngineCore
    middle = getattr(kind, "_initialize_kv_caches", None)
    if middle is None or not hasattr(core, "freeze_gc_heap"):
        return False
    if hasattr(middle, _MARK):
        return True

    @functools.wraps(middle)
    def initialize(self: Any, *arguments: Any, **named: Any) -> Any:
        done = middle(self, *arguments, **named)
        freeze = core.freeze_gc_heap

        def built() -> None:
            core.freeze_gc_heap = freeze
            tell(self)
            freeze()

        core.freeze_gc_heap = built
        return done

    setattr(initialize, _MARK, True)
    kind._initialize_kv_caches = initialize
    return True


def tells_when_built() -> bool:
    """Whether `when_built` was called here, and this version of vLLM has what it takes."""
    from vllm.v1.engine import core

    return hasattr(getattr(core.EngineCore, "_initialize_kv_caches", None), _MARK)


def can_be_asked(core: Any) -> bool:
    """Whether a prompt can be run through this core by itself: not where other engines take part, or nothing is said."""
    config = core.vllm_config
    return (
        config.model_config.runner_type == "generate"
        and config.parallel_config.data_parallel_size == 1
        and getattr(config, "kv_transfer_config", None) is None
        and getattr(config, "ec_transfer_config", None) is None
        and not getattr(config.model_config, "is_encoder_decoder", False)
    )


def vocabulary(core: Any) -> int:
    """How many tokens the model knows."""
    return int(core.vllm_config.model_config.get_vocab_size())


def of_first_worker(core: Any, function: Callable[[Any], Any]) -> Any:
    """Call a function of a module with the worker of the first rank; its answer."""
    return of_workers(core, function)[0]


def of_workers(core: Any, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a function of a module with the worker of each rank, and arguments; their answers, by rank."""
    return list(core.model_executor.collective_rpc(function, args=arguments))


def around_sleep(worker: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have ``before`` called whenever this worker's weights are about to be taken away, and ``after`` when they are back.

    Reading memory that sleep mode has unmapped would end the process.
    """
    inner = getattr(worker, "worker", worker)  # in vLLM's wrapper
    sleep, wake_up = getattr(inner, "sleep", None), getattr(inner, "wake_up", None)
    if sleep is None or wake_up is None:
        return

    @functools.wraps(sleep)
    def slept(*arguments: Any, **named: Any) -> Any:
        before()
        return sleep(*arguments, **named)

    @functools.wraps(wake_up)
    def woken(tags: list[str] | None = None, *arguments: Any, **named: Any) -> Any:
        done = wake_up(tags, *arguments, **named)
        if tags is None or _WEIGHTS in tags:  # it can wake the KV cache alone
            after()
        return done

    inner.sleep, inner.wake_up = slept, woken


def generate(core: Any, prompt: Sequence[int], count: int) -> tuple[tuple[int, ...], float]:
    """The most probable tokens after a prompt, and the sum of their log-probabilities; nothing of it stays in the core.

    Raises:
        InternalError: The core ended without having said as much.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    known = set(EngineCoreRequest.__struct_fields__)
    fields = {
        "request_id": _REQUEST,
        "prompt_token_ids": list(prompt),
        "mm_features": None,
        "sampling_params": SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=0),
        "pooling_params": None,
        "eos_token_id": None,
        "arrival_time": time.time(),
        "lora_request": None,
        "cache_salt": _REQUEST,  # what is in the prefix cache is of no use to others
        "data_parallel_rank": None,
        "external_req_id": _REQUEST,
    }
    request = EngineCoreRequest(**{name: value for name, value in fields.items() if name in known})
    core.add_request(*core.preprocess_add_request(request))
    tokens, logprob = [], 0.0
    try:
        for _ in range(_MOST_STEPS):
            outputs = _step(core)
            for output in [each for found in outputs.values() for each in found.outputs]:
                tokens += output.new_token_ids
                if output.new_logprobs is not None:
                    logprob += float(output.new_logprobs.logprobs[:, 0].sum())
                if output.finish_reason is not None:
                    return tuple(int(token) for token in tokens), logprob
    finally:
        core.abort_requests([_REQUEST])
        while getattr(core, "batch_queue", None):  # what was scheduled ahead
            _step(core)
        core.reset_prefix_cache()
    raise errors.InternalError(f"ask the engine: it said {len(tokens)} of {count} tokens in {_MOST_STEPS} steps")


def _step(core: Any) -> dict[int, Any]:
    """One step as the core's own loop makes it."""
    outputs, executed = core.step_fn()
    if hasattr(core, "post_step"):
        core.post_step(executed)
    return outputs or {}
