"""The entry point ``vllm.general_plugins``: vLLM calls it in each of its processes, more than once.

It has the weights that the launch will probably ask for read ahead, tells vLLM the load format, and who is to be told of a
finished engine, and does nothing else: no CUDA.
"""

from __future__ import annotations

LOAD_FORMAT = "coldsnap"


def register() -> None:
    """Make ``--load-format coldsnap`` known."""
    from coldsnap.adapters import early

    early.begin()  # before vLLM's loaders are imported
    from vllm.model_executor import model_loader

    from coldsnap.adapters.vllm import engine, live
    from coldsnap.adapters.vllm.loader import ColdsnapLoader

    # Registering the same class again would be logged as a warning, in every process.
    if model_loader._LOAD_FORMAT_TO_MODEL_LOADER.get(LOAD_FORMAT) is not ColdsnapLoader:
        model_loader.register_model_loader(LOAD_FORMAT)(ColdsnapLoader)
    engine.when_built(live.built)
