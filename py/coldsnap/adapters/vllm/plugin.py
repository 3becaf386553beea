"""The entry point ``vllm.general_plugins``: vLLM calls it in each of its processes, more than once.

It tells vLLM the load format, and who is to be told of a finished engine, and does nothing else: no CUDA, and no setting is
read.
"""

from __future__ import annotations

LOAD_FORMAT = "coldsnap"


def register() -> None:
    """Make ``--load-format coldsnap`` known."""
    from vllm.model_executor import model_loader

    from coldsnap.adapters.vllm import engine, live
    from coldsnap.adapters.vllm.loader import ColdsnapLoader

    # Registering the same class again would be logged as a warning, in every process.
    if model_loader._LOAD_FORMAT_TO_MODEL_LOADER.get(LOAD_FORMAT) is not ColdsnapLoader:
        model_loader.register_model_loader(LOAD_FORMAT)(ColdsnapLoader)
    engine.when_built(live.built)
