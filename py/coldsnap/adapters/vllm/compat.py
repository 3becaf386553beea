"""Where versions of vLLM differ: everything else of the adapter sees only what stands here.

Features are looked for, versions are not compared. Known by their source: 0.24, 0.26, 0.32, 0.33.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import gc
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.model_executor.model_loader import get_model_loader, utils
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from coldsnap import errors
from coldsnap.adapters import checkpoint
from coldsnap.adapters.beside import BesideRanks
from coldsnap.adapters.configuration import without_ours
from coldsnap.adapters.verdict import Alone, Ranks

# Objects of these modules are the engine's configuration, its groups of processes and its bookkeeping: no weights.
_OURS_NOT = (
    *("vllm.compilation", "vllm.config", "vllm.distributed", "vllm.forward_context", "vllm.logger", "vllm.platforms"),
    *("vllm.profiler", "vllm.transformers_utils", "transformers", "vllm.model_executor.model_loader.reload"),
    *("vllm.v1.kv_cache_interface", "vllm.config.compilation"),
)
# The same by the name of a class: a part that this process leaves out, and the configuration of a quantisation, which stands
# in the module of its methods and may hold lists in the order of a set.
_OURS_NOT_BY_NAME = frozenset(("StageMissingLayer", "PPMissingLayer", "QuantizationConfig"))
# Bookkeeping of loading, which a restore has not done; by the last part of a path.
_LOADING = frozenset(("weight_loader", "_original_weight_loader", "loaded_weights", "_is_loaded"))
# Tensors that hold an address of native memory: the same number means nothing in another process.
_HANDLES = frozenset(("handler_tensor",))
# What a model's `load_weights` sets of itself (`SupportsEagleBase`), which a restore must set in its stead.
_FLAGS = frozenset(("has_own_lm_head", "has_own_embed_tokens"))
# What `torch.compile` made of a model's code: a way to the same tensors, by functions that can't be looked into.
_COMPILED = frozenset(("_compiled_callable", "aot_compiled_fn", "_bytecode_hook_handle"))
# What the engine gives a layer once it is loaded, in the place of an empty tensor; and what it notes while it compiles.
_LATER = re.compile(
    r"\.kv_cache\b|(^|\.)(compiled|first_compile|_compiled_bytecode|was_aot_compile_fn_loaded_from_disk)$"
)
# Speculation without a model of its own.
_WITHOUT_DRAFT = frozenset(("ngram", "ngram_gpu", "suffix"))
# Scales of a KV cache: a buffer, its value as a float, and a copy of it in host memory.
_SCALES = ("_q_scale", "_k_scale", "_v_scale")
_HOST_SCALES = tuple(f"{name}_cpu" for name in _SCALES)
_rounds = itertools.count()


def facts() -> dict[str, Any]:
    """Engine, libraries and device, as far as they decide on the layout of weights."""
    from vllm.platforms import current_platform

    capability = getattr(current_platform, "get_device_capability", lambda: None)()
    on_cpu = current_platform.is_cpu()
    return {
        "name": "vllm",
        "version": str(vllm.__version__),  # the CPU build has another distribution name
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": "cpu" if on_cpu else str(current_platform.get_device_name()),
        "capability": torch.backends.cpu.get_cpu_capability() if on_cpu else str(capability),
    }


def modalities(model_config: Any) -> tuple[str, ...]:
    """The kinds of input beside text that a model knows; empty where it knows none, or this version can't say."""
    if getattr(model_config, "multimodal_config", None) is None:
        return ()
    from vllm.multimodal import MULTIMODAL_REGISTRY as registry

    make = getattr(registry, "get_processing_info", getattr(registry, "_create_processing_info", None))
    try:
        return tuple(sorted(make(model_config).get_supported_mm_limits()))
    except Exception:  # of whatever kind: a draft processes no images, and other versions ask for other arguments
        return ()


def own_loader(load_config: Any) -> BaseModelLoader:
    """The loader that the engine would have taken, were it not for us."""
    return get_model_loader(_replaced(load_config, "auto", without_ours(load_config.model_loader_extra_config)))


def device_of(loader: BaseModelLoader, vllm_config: Any) -> torch.device:
    """Where the model's weights belong; a GPU with its index, which other threads would not know."""
    chosen = loader.load_config.device
    device = torch.device(vllm_config.device_config.device if chosen is None else chosen)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def make_model(loader: BaseModelLoader, vllm_config: Any, model_config: Any, prefix: str) -> torch.nn.Module:
    """Build a model without its weights, on torch's current default device."""
    create = getattr(loader, "create_model", None)
    if create is not None:
        return create(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
    return utils.initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)


@contextlib.contextmanager
def building(model_config: Any, device: torch.device | str) -> Iterator[None]:
    """As while the engine makes a model: new tensors are of the model's dtype and on the device."""
    with finishing(model_config), torch.device(device):
        yield


@contextlib.contextmanager
def finishing(model_config: Any) -> Iterator[None]:
    """As while the engine loads weights and processes them: new tensors are of the model's dtype, in host memory."""
    try:
        from vllm.utils.torch_utils import set_default_torch_dtype
    except ImportError:
        from vllm.model_executor.model_loader.utils import set_default_torch_dtype
    with set_default_torch_dtype(model_config.dtype):
        yield


def fill_with_dummies(load_config: Any, model: torch.nn.Module, model_config: Any) -> None:
    """Give weights values that post-processing can work on; they mean nothing."""
    get_model_loader(_replaced(load_config, "dummy", {})).load_weights(model, model_config)


def finalize(model: torch.nn.Module, model_config: Any, device: torch.device) -> None:
    """The engine's post-processing of weights, online quantisation included."""
    if any(_quantizes_online(method) for _, method in quant_methods(model)):
        finish = getattr(
            sys.modules["vllm.model_executor.model_loader.base_loader"], "finalize_layerwise_processing", None
        )
        if finish is not None:
            finish(model, model_config)
    utils.process_weights_after_loading(model, model_config, device)


def knows_pre_processed() -> bool:
    """Whether this version can finish a model whose weights have been post-processed already."""
    from vllm.model_executor import utils as model_utils

    return hasattr(model_utils, "weights_already_processed")


def pre_processed() -> contextlib.AbstractContextManager[Any]:
    """Within, `finalize` rebuilds what is Python's and leaves weights as they are; only where `knows_pre_processed`."""
    from vllm.model_executor.utils import weights_already_processed

    return weights_already_processed()


def quant_methods(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The quantisation methods of a model, an unquantised layer's among them, with their layer's name."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, QuantizeMethodBase):
            yield name, method


def why_not_meta(model: torch.nn.Module) -> str:
    """Why a model can't be finished from post-processed weights; empty if it can."""
    if not knows_pre_processed():
        return "this version of vLLM can't take weights that are post-processed already"
    for name, method in quant_methods(model):
        if not method.supports_pre_processed_weights:
            return f"{name}: {type(method).__name__} can't take weights that are post-processed already"
        if _quantizes_online(method):
            return f"{name}: {type(method).__name__} quantises while it loads"
    return ""


def why_not_loaded(model: torch.nn.Module) -> str:
    """Why a model's weights before post-processing are not all there is; empty if they are."""
    for name, method in quant_methods(model):
        if _quantizes_online(method):
            return f"{name}: {type(method).__name__} quantises while it loads"
    return ""


def packs_natively(model: torch.nn.Module) -> bool:
    """Whether post-processing will hide weights behind handles of native code: the CPU's packed products do."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return False
    custom_ops = sys.modules.get("vllm._custom_ops")
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return bool(getattr(custom_ops, "_supports_onednn", False)) or bool(has_tiles())


def stop(value: object) -> bool:
    """For the walker: where it does not enter."""
    return _stops_at(type(value))


@functools.lru_cache(4096)  # a model has thousands of objects, of a few types
def _stops_at(kind: type) -> bool:
    if any(base.__name__ in _OURS_NOT_BY_NAME for base in kind.__mro__):
        return True
    module = kind.__module__
    return any(module == name or module.startswith(name + ".") for name in _OURS_NOT)


def skip(path: str, value: object) -> bool:
    """For the walker: what has no meaning in another process."""
    return path.rpartition(".")[2] in _LOADING | _COMPILED


def handle(path: str) -> bool:
    """Whether a path names an address of native memory."""
    return path.rpartition(".")[2] in _HANDLES


def later(path: str) -> bool:
    """For `coldsnap.adapters.in_place`: what the engine gives its model after loading."""
    return _LATER.search(path) is not None


def why_not_in_place(vllm_config: Any) -> str:
    """Why the weights of a running engine are not those of one artifact, each in its place; empty if they are."""
    if getattr(vllm_config, "lora_config", None) is not None:
        return "with LoRA the engine wraps its layers after loading"
    method = getattr(getattr(vllm_config, "speculative_config", None), "method", None)
    if method is not None and method not in _WITHOUT_DRAFT:
        return f"speculation by {method} has weights of its own beside the model's"
    if getattr(vllm_config.parallel_config, "enable_eplb", False):
        return "experts change places while the engine serves (EPLB)"
    return ""


def set_flags(model: torch.nn.Module, scalars: dict[str, Any]) -> None:
    """Set of a model what its `load_weights` would have set, by the captured scalars."""
    for name in _FLAGS:
        if isinstance(scalars.get(name), bool) and hasattr(model, name):
            setattr(model, name, scalars[name])


@contextlib.contextmanager
def keeping_host_scales(model: torch.nn.Module) -> Iterator[None]:
    """Keep the tensors in which Python has the scales of a KV cache: finishing a model that is processed already makes
    others, which on a CPU are the buffers themselves. They get their values by `refresh_scales`.
    """
    kept = [
        (module, name, vars(module)[name])
        for module in model.modules()
        for name in _HOST_SCALES
        if isinstance(vars(module).get(name), torch.Tensor)
    ]
    yield
    for module, name, tensor in kept:
        setattr(module, name, tensor)


def refresh_scales(model: torch.nn.Module) -> dict[str, float]:
    """Take what Python keeps of the scales of a KV cache from the buffers again, as the engine itself does.

    Returns:
        What Python has as numbers, by the path that `coldsnap.adapters.walker.walk` gives it.
    """
    found: dict[str, float] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name in _SCALES:
            scale = module._buffers.get(name, vars(module).get(name))
            plain, host = (vars(module).get(name + end) for end in ("_float", "_cpu"))
            if not isinstance(scale, torch.Tensor) or scale.numel() != 1:
                continue
            if isinstance(plain, float):
                found[f"{path}.{name}_float".removeprefix(".")] = value = scale.item()
                setattr(module, f"{name}_float", value)
            if isinstance(host, torch.Tensor) and host.shape == scale.shape:
                host.copy_(scale)
    return found


def wait_for(device: torch.device) -> None:
    """Until all that was asked of a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release_memory() -> None:
    """What nobody refers to goes back to the device, which the engine is about to measure; host memory can wait.

    Takes some tenths of a second with all that an engine has imported.
    """
    if hasattr(torch, "accelerator") and torch.accelerator.is_available():
        gc.collect()
        torch.accelerator.empty_cache()


def shard_of(vllm_config: Any) -> str:
    """The shard of this rank, by its place in the pipeline, among tensors and among experts."""
    from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank, parallel_state

    if not torch.distributed.is_initialized():
        return "shard-00-00-00"
    experts = parallel_state.get_ep_group().rank_in_group if _spreads_experts(vllm_config) else 0
    return f"shard-{get_pp_group().rank_in_group:02d}-{get_tensor_model_parallel_rank():02d}-{experts:02d}"


def _spreads_experts(vllm_config: Any) -> bool:
    """Whether a rank's place among tensors does not say what of the experts it has: they belong to the data-parallel ranks
    together, each whole expert to one of them or a piece of every expert to each.
    """
    parallel = vllm_config.parallel_config
    several = parallel.data_parallel_size * getattr(parallel, "prefill_context_parallel_size", 1) > 1
    return parallel.enable_expert_parallel or (several and getattr(vllm_config.model_config, "is_moe", False))


def ranks() -> Ranks:
    """The processes that load this model with us."""
    if not torch.distributed.is_initialized():
        return Alone()
    from vllm.distributed.parallel_state import get_world_group

    group = get_world_group()
    return Alone() if group.world_size == 1 else _Ranks(group.rank_in_group, group.world_size)


def beside(token: str) -> Alone | BesideRanks:
    """The same processes for a thread that works beside the engine; called where `ranks` is, used where it likes.

    Args:
        token: The same in every rank, and never used before.
    """
    found = ranks()
    if isinstance(found, Alone):
        return found
    store = torch.distributed.distributed_c10d._get_default_store()
    return BesideRanks(store, f"coldsnap/{token}", found.rank, found.size)


def loads_without_others(vllm_config: Any, model_config: Any) -> bool:
    """Whether only some of the ranks load this model, so that the others would not hear of it: drafts, in a pipeline."""
    return model_config is not vllm_config.model_config and vllm_config.parallel_config.pipeline_parallel_size > 1


@dataclasses.dataclass
class _Ranks:
    """Ranks that talk through the store by which they found each other: alone it has a time limit for each call."""

    rank: int
    size: int

    def gather(self, text: str, timeout_s: float) -> list[str]:
        store = torch.distributed.distributed_c10d._get_default_store()
        said = f"coldsnap/{next(_rounds)}"
        keys = [f"{said}/{rank}" for rank in range(self.size)]
        store.set(keys[self.rank], text)
        for rank, key in enumerate(keys):
            try:
                store.wait([key], datetime.timedelta(seconds=timeout_s))
            except (RuntimeError, ValueError) as cause:
                raise errors.TimedOutError(
                    f"hear {self.size} ranks: rank {rank} said nothing within {timeout_s:.0f} s",
                    remedy="look for its failure in its own log",
                ) from cause
        return [store.get(key).decode() for key in keys]


def _replaced(load_config: Any, load_format: str, extra: Any) -> Any:
    return dataclasses.replace(load_config, load_format=load_format, model_loader_extra_config=extra)


def _quantizes_online(method: Any) -> bool:
    return bool(getattr(method, "uses_meta_device", False))


def checkpoint_of(model_config: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    """The identity of the checkpoint that a model is loaded from, by its content.

    Raises:
        RequestInvalidError: It is neither a folder with weights nor a hub's repository whose commit is known here.
        IoError: A file can't be read.
    """
    name = getattr(model_config, "model_weights", "") or model_config.model
    folder = Path(name)
    if folder.is_dir():
        return checkpoint.of_folder(folder, environ)
    return checkpoint.of_commit(name, _commit_of(name, model_config.revision))


def _commit_of(repository: str, revision: str | None) -> str:
    """The commit of a hub's repository, as it was resolved when its configuration was read."""
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "params.json"):
        path = try_to_load_from_cache(repository, name, revision=revision)
        if isinstance(path, str):
            commit = Path(path).parent.name
            if len(commit) == 40:
                return commit
    raise errors.RequestInvalidError(
        f"identify the checkpoint {repository}: no commit of it is known on this machine",
        stage="open",
        remedy="give the folder of the checkpoint, or an artifact and identity manifest",
    )
