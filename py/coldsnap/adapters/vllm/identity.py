"""What decides how vLLM builds a model's weights in memory, before it is loaded: the identity of an artifact.

Two starts of equal identity get equal weights. What is listed here and does not matter costs a capture; what matters and
is missing here is found by the layout, the scalars and the oracle of an artifact. Ports, cache folders, the number of
sequences and the share of memory are no part of it, and neither is anything secret. Every rank has the same identity:
which part of the weights is whose stands in the shard's name.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

FORMAT = 1
# Of these the names say that they choose a kernel, a format or a layout ...
_CHOOSING = re.compile(
    r"ATTENTION|ATTN|FLASH|MOE|MARLIN|MACHETE|CUTLASS|DEEP_?GEMM|GEMM|FP8|FP4|MXFP|INT8|INT4|QUANT|TRITON|AITER|ROCM|"
    r"XFORMERS|MLA|FUSED|FUSION|KERNEL|TRTLLM|RUNNER|SKINNY|SGL|PREPACK|OFFLOAD|UVA|ROPE|INVARIANT|ONEDNN|WEIGHT|PAD|BLOCK"
)
# ... and of these that they don't, whatever else is in them.
_NOT_CHOOSING = re.compile(
    r"TIMEOUT|PORT|HOST|KEY|TOKEN|SECRET|PATH|ROOT|DIR$|FOLDER|CACHE|LOG|TRACE|PROFIL|JIT|AUTOTUNE"
)
_PACKAGES = (
    *("aiter", "compressed-tensors", "cutlass", "deep-ep", "deep-gemm", "flash-attn", "flashinfer-python", "torchao"),
    *("transformers", "triton", "vllm-flash-attn", "xformers"),
)
_PARALLEL = (
    *("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size"),
    *("decode_context_parallel_size", "enable_expert_parallel", "enable_eplb", "eplb_config"),
    *("expert_placement_strategy", "enable_elastic_ep", "enable_hc_sp", "worker_extension_cls"),
)
_MODEL = (
    *("dtype", "quantization", "quantization_config", "max_model_len", "model_impl", "runner_type", "convert_type"),
    *("enable_sleep_mode", "enable_cumem_allocator", "disable_sliding_window", "model_class_overrides"),
    *("word_embeddings_untied_by_checkpoint", "logits_processors"),
)
_CACHE = ("cache_dtype", "calculate_kv_scales", "kv_cache_dtype_skip_layers", "cpu_offload_gb", "mamba_cache_dtype")
_MULTIMODAL = ("mm_encoder_only", "mm_encoder_tp_mode", "mm_encoder_attn_backend", "mm_encoder_attn_dtype")
# Of a model that does not say which it knows.
_MODALITIES = ("image", "video", "audio")
# Our own methods of a worker, which leave loading as it is.
_EXTENSION = "coldsnap.adapters.vllm.worker.WorkerExtension"
# Of a checkpoint's configuration: where it lies, and who wrote it.
_NO_CONFIG = ("_name_or_path", "name_or_path", "transformers_version", "_commit_hash")
_LONG = 2000


def of(
    vllm_config: Any,
    model_config: Any,
    prefix: str,
    checkpoint: Mapping[str, Any],
    facts: Mapping[str, Any],
    modalities: Sequence[str] = (),
) -> dict[str, Any]:
    """The identity of a model that is about to be loaded. Nothing of it is changed.

    Args:
        vllm_config: The engine's configuration.
        model_config: Of the model; for a draft of speculative decoding it is another one than the engine's.
        prefix: As the loader got it.
        checkpoint: From `coldsnap.adapters.checkpoint`.
        facts: Of the engine and the device, from `coldsnap.adapters.vllm.compat.facts`.
        modalities: That the model knows beside text, from `coldsnap.adapters.vllm.compat.modalities`.
    Returns:
        Strings, whole numbers, booleans and None in objects, as a canonical form of all that counts.
    """
    parallel = vllm_config.parallel_config
    found = {
        "format": FORMAT,
        "engine": dict(facts),
        "packages": _packages(_PACKAGES),
        "plugins": _plugins(os.environ),
        "variables": variables(os.environ),
        "checkpoint": dict(checkpoint),
        "model": {
            "role": "target" if model_config is vllm_config.model_config else "draft",
            "prefix": prefix,
            "config": _configuration(model_config.hf_config),
            **_some(model_config, _MODEL),
        },
        "parallel": _some(parallel, _PARALLEL),
        "cache": _some(vllm_config.cache_config, _CACHE),
        "attention": _every(getattr(vllm_config, "attention_config", None)),
        "kernel": _every(getattr(vllm_config, "kernel_config", None)),
        "offload": _every(getattr(vllm_config, "offload_config", None)),
        "lora": getattr(vllm_config, "lora_config", None) is not None,
        "speculation": _speculation(getattr(vllm_config, "speculative_config", None)),
        "custom_ops": sorted(getattr(vllm_config.compilation_config, "custom_ops", ())),
    }
    if found["parallel"].get("worker_extension_cls") == _EXTENSION:
        found["parallel"]["worker_extension_cls"] = ""
    # Data-parallel ranks share out whole experts, or pieces of each of them; without experts they are replicas.
    if getattr(parallel, "enable_expert_parallel", False) or getattr(model_config, "is_moe", False):
        found["parallel"] |= _some(parallel, ("data_parallel_size",))
    multimodal = getattr(model_config, "multimodal_config", None)
    if multimodal is not None:
        # An engine for text alone is asked for by one switch, or by a limit of 0 for each modality: towers count.
        left_out = [name for name in modalities or _MODALITIES if _limit(multimodal, name) == 0]
        found["multimodal"] = {**_some(multimodal, _MULTIMODAL), "left_out": ",".join(left_out)}
    return found


def different(captured: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Each field in which two identities differ, with both values, for people; the captured one first."""
    theirs, ours = dict(_flat(captured)), dict(_flat(here))
    names = [name for name in (*theirs, *(name for name in ours if name not in theirs))]
    return [
        f"{name} was {_shown(theirs, name)} and is {_shown(ours, name)}"
        for name in names
        if (name in theirs) != (name in ours) or theirs.get(name) != ours.get(name)
    ]


def without_checkpoint(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of the engine alone, for an image that has no checkpoint."""
    return {name: value for name, value in identity.items() if name != "checkpoint"}


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of the engine that choose kernels; what is secret or local never is among them."""
    chosen = {}
    for name in sorted(environ):
        ours = name.startswith("VLLM_") or name in ("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE")
        if ours and _NOT_CHOOSING.search(name) is None and (_CHOOSING.search(name) or not name.startswith("VLLM_")):
            chosen[name] = environ[name][:_LONG]
    return chosen


def _configuration(config: Any) -> dict[str, str]:
    """A checkpoint's configuration as flat text: each leaf by its dotted name, as JSON."""
    found = json.loads(json.dumps(config.to_dict(), default=str, sort_keys=True))
    return {
        name: json.dumps(value, ensure_ascii=False)[:_LONG]
        for name, value in _flat(found)
        if name.rpartition(".")[2] not in _NO_CONFIG
    }


def _some(config: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: _plain(getattr(config, name)) for name in names if hasattr(config, name)}


def _every(config: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(config):
        return {}
    return {field.name: _plain(getattr(config, field.name, None)) for field in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    """As JSON that every version writes alike; what has no such form is its text, without addresses in memory."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int):
        return str(value) if value < 0 else value
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value):
        return json.dumps(_every(value), sort_keys=True, default=_text)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        ordered = sorted(map(str, value)) if isinstance(value, set | frozenset) else value
        return json.dumps(ordered, sort_keys=True, default=_text)
    return _text(value)


def _text(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _speculation(config: Any) -> str | None:
    return None if config is None else str(getattr(config, "method", True))


def _limit(multimodal: Any, modality: str) -> int | None:
    get = getattr(multimodal, "get_limit_per_prompt", None)
    return None if get is None else int(get(modality))


def _packages(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _plugins(environ: Mapping[str, str]) -> str:
    """What else may change models: general plugins but our own, as far as the allow-list has them."""
    allowed = environ.get("VLLM_PLUGINS")
    every = {entry.name for entry in importlib.metadata.entry_points(group="vllm.general_plugins")} - {"coldsnap"}
    return ",".join(sorted(every if allowed is None else every & set(allowed.split(","))))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, Mapping):
            yield from _flat(each, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", each


def _shown(found: Mapping[str, Any], name: str) -> str:
    if name not in found:
        return "not there"
    text = json.dumps(found[name], ensure_ascii=False) if not isinstance(found[name], str) else found[name] or "empty"
    return text if len(text) <= 100 else f"{text[:97]}..."
