"""The identity: what chooses weights is in it, what is secret or local is not, and differences have names and values."""

import dataclasses
import types
from collections.abc import Sequence
from typing import Any

import pytest

from coldsnap.adapters.vllm import identity
from coldsnap.values import canonical

FACTS = {"name": "vllm", "version": "0.32.0", "torch": "2.13.0", "cuda": None, "device": "cpu", "capability": "AVX512"}
CHECKPOINT = {"sha256": {"model.safetensors": "a" * 64}}


@dataclasses.dataclass
class Attention:
    backend: str | None = None
    flash_attn_version: int | None = None


def config(**changes: Any) -> types.SimpleNamespace:
    """An engine's configuration, as far as an identity looks at it; changes are made by dotted name with `__`."""
    hf = {
        "hidden_size": 256,
        "rope_parameters": {"rope_theta": 1e6},
        "_name_or_path": "/some/path",
        "dtype": "bfloat16",
    }
    model = types.SimpleNamespace(
        hf_config=types.SimpleNamespace(to_dict=lambda: dict(hf)),
        dtype="torch.bfloat16",
        quantization=None,
        max_model_len=512,
        multimodal_config=None,
    )
    made = types.SimpleNamespace(
        model_config=model,
        parallel_config=types.SimpleNamespace(
            tensor_parallel_size=1, data_parallel_size=1, enable_expert_parallel=False
        ),
        cache_config=types.SimpleNamespace(cache_dtype="auto", gpu_memory_utilization=0.9),
        attention_config=Attention(),
        compilation_config=types.SimpleNamespace(custom_ops=["none"]),
        scheduler_config=types.SimpleNamespace(max_num_seqs=128),
    )
    for name, value in changes.items():
        owner, _, leaf = name.rpartition("__")
        setattr(getattr(made, owner) if owner else made, leaf, value)
    made.hf = hf
    return made


def of(
    made: types.SimpleNamespace, prefix: str = "", checkpoint: Any = CHECKPOINT, modalities: Sequence[str] = ()
) -> dict[str, Any]:
    found = identity.of(made, made.model_config, prefix, checkpoint, FACTS, modalities)
    canonical(found, "the identity")  # the format can hold it
    return found


def test_what_does_not_matter_is_not_in_it() -> None:
    other = config(scheduler_config__max_num_seqs=1, cache_config__gpu_memory_utilization=0.1)
    other.hf["_name_or_path"] = "/another/path"
    other.parallel_config.data_parallel_size = 2  # replicas
    assert of(other) == of(config())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"parallel_config__tensor_parallel_size": 2}, "parallel.tensor_parallel_size was 1 and is 2"),
        ({"attention_config": Attention("FLASHINFER")}, "attention.backend was null and is FLASHINFER"),
        ({"model_config__dtype": "torch.float16"}, "model.dtype was torch.bfloat16 and is torch.float16"),
        ({"cache_config__cache_dtype": "fp8"}, "cache.cache_dtype was auto and is fp8"),
        ({"lora_config": object()}, "lora was false and is true"),
        ({"parallel_config__enable_expert_parallel": True}, "parallel.enable_expert_parallel was false and is true"),
    ],
)
def test_what_matters_is_named_with_both_values(change: dict[str, Any], line: str) -> None:
    assert identity.different(of(config()), of(config(**change)))[0] == line


def test_the_checkpoint_s_configuration_is_in_it_leaf_by_leaf() -> None:
    edited = config()
    edited.hf["rope_parameters"] = {"rope_theta": 5e5}
    (line,) = identity.different(of(config()), of(edited))
    assert line == "model.config.rope_parameters.rope_theta was 1000000.0 and is 500000.0"


def test_our_own_methods_of_a_worker_change_no_weights_and_another_s_may() -> None:
    none = config(parallel_config__worker_extension_cls="")
    ours = config(parallel_config__worker_extension_cls="coldsnap.adapters.vllm.worker.WorkerExtension")
    other = config(parallel_config__worker_extension_cls="theirs.Extension")
    assert of(ours) == of(none)
    assert identity.different(of(ours), of(other)) == [
        "parallel.worker_extension_cls was empty and is theirs.Extension"
    ]


@pytest.mark.parametrize("change", [{"parallel_config__enable_expert_parallel": True}, {"model_config__is_moe": True}])
def test_experts_on_data_parallel_ranks_are_not_replicas(change: dict[str, Any]) -> None:
    one, two = (config(**change) for _ in range(2))
    two.parallel_config.data_parallel_size = 2
    assert identity.different(of(one), of(two)) == ["parallel.data_parallel_size was 1 and is 2"]


def test_a_draft_is_another_model_than_its_target() -> None:
    made = config()
    draft = config().model_config
    found = identity.of(made, draft, "", CHECKPOINT, FACTS)
    assert identity.different(of(made), found) == ["model.role was target and is draft"]


def test_a_checkpoint_may_be_left_out() -> None:
    other = of(config(), checkpoint={"sha256": {"model.safetensors": "b" * 64}})
    (line,) = identity.different(of(config()), other)
    assert line.startswith("checkpoint.sha256.model.safetensors was aaa")
    assert not identity.different(*map(identity.without_checkpoint, (of(config()), other)))


def test_left_out_modalities_are_one_field() -> None:
    def limited(limits: dict[str, int], only: bool) -> types.SimpleNamespace:
        made = config()
        made.model_config.multimodal_config = types.SimpleNamespace(
            language_model_only=only,
            mm_encoder_only=False,
            get_limit_per_prompt=lambda name: 0 if only else limits.get(name, 999),
        )
        return made

    known = ("image", "video")
    assert of(limited({"image": 0, "video": 0}, False), modalities=known) == of(limited({}, True), modalities=known)
    none = {"image": 0, "video": 0, "audio": 0}
    assert of(limited(none, False)) == of(limited({}, True))
    assert identity.different(of(limited({}, False)), of(limited({"video": 0}, False))) == [
        "multimodal.left_out was empty and is video"
    ]


def test_variables_that_choose_kernels_and_nothing_secret() -> None:
    environ = {
        "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
        "VLLM_USE_DEEP_GEMM": "1",
        "VLLM_API_KEY": "secret",
        "VLLM_ATTENTION_API_KEY": "secret",
        "VLLM_CACHE_ROOT": "/cache",
        "VLLM_HOST_IP": "10.0.0.1",
        "VLLM_SERVICE_PORT": "8000",
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "HF_TOKEN": "secret",
    }
    assert identity.variables(environ) == {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "VLLM_USE_DEEP_GEMM": "1"}
