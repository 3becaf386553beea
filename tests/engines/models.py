"""Checkpoints of tiny models, made on the spot: nothing is fetched, every byte follows from a seed.

Every parameter is drawn from a normal distribution, norm weights around one. What a model library initialises to ones
and zeros would hide a tensor that was not restored.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

VOCABULARY = 512
_HIDDEN = 256
_HEADS, _KEY_HEADS, _HEAD_SIZE = 4, 2, 64
_WIDE = 512
_EXPERTS, _EXPERT_WIDE = 8, 128
_GROUP = 128  # weights that share one scale, along the input
_VISION = {"depth": 2, "embed_dim": 64, "hidden_size": _HIDDEN, "num_heads": 2, "patch_size": 14}
_CHANNELS, _FRAMES, _MERGED = 3, 2, 2  # of a patch: colours, frames, and patches a side that become one token
# Tokens by which a processor and a prompt speak of images.
MEDIA = {"<|vision_start|>": 500, "<|vision_end|>": 501, "<|image_pad|>": 502, "<|video_pad|>": 503}
_NORM = re.compile(r"(norm\d?|ln_q)\.weight")

Tensors = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of model: its config.json without what all share, and what is done to the plain tensors."""

    config: dict[str, Any]
    finish: Callable[[Tensors, torch.Generator], Tensors] = lambda tensors, _: tensors


def _is_linear(name: str) -> bool:
    """Whether ``name`` is a weight that quantisation replaces: the projections, not the embeddings and the head."""
    return name.endswith("_proj.weight")


def _shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a Qwen decoder with ``config``, as its checkpoints name them."""
    family = config["model_type"]
    yield "model.embed_tokens.weight", (VOCABULARY, _HIDDEN)
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        for name, rows in (("q", _HEADS), ("k", _KEY_HEADS), ("v", _KEY_HEADS)):
            yield f"{layer}.self_attn.{name}_proj.weight", (rows * _HEAD_SIZE, _HIDDEN)
            if family in ("qwen2", "qwen2_vl"):
                yield f"{layer}.self_attn.{name}_proj.bias", (rows * _HEAD_SIZE,)
            elif name != "v":
                yield f"{layer}.self_attn.{name}_norm.weight", (_HEAD_SIZE,)
        yield f"{layer}.self_attn.o_proj.weight", (_HIDDEN, _HEADS * _HEAD_SIZE)
        yield f"{layer}.input_layernorm.weight", (_HIDDEN,)
        yield f"{layer}.post_attention_layernorm.weight", (_HIDDEN,)
        mlps = [(f"{layer}.mlp", _WIDE)]
        if family == "qwen3_moe":
            mlps = [(f"{layer}.mlp.experts.{expert}", _EXPERT_WIDE) for expert in range(_EXPERTS)]
            yield f"{layer}.mlp.gate.weight", (_EXPERTS, _HIDDEN)
        for mlp, wide in mlps:
            yield f"{mlp}.gate_proj.weight", (wide, _HIDDEN)
            yield f"{mlp}.up_proj.weight", (wide, _HIDDEN)
            yield f"{mlp}.down_proj.weight", (_HIDDEN, wide)
    yield "model.norm.weight", (_HIDDEN,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (VOCABULARY, _HIDDEN)
    if "vision_config" in config:
        yield from _tower_shapes(config["vision_config"])


def _tower_shapes(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a Qwen2-VL vision tower."""
    wide, patch = vision["embed_dim"], vision["patch_size"]
    merged = wide * _MERGED**2
    yield "visual.patch_embed.proj.weight", (wide, _CHANNELS, _FRAMES, patch, patch)
    layers = {"visual.merger.ln_q": (wide,), "visual.merger.mlp.0": (merged, merged)}
    layers["visual.merger.mlp.2"] = (vision["hidden_size"], merged)
    for index in range(vision["depth"]):
        block = f"visual.blocks.{index}"
        layers |= {f"{block}.norm1": (wide,), f"{block}.norm2": (wide,)}
        layers |= {f"{block}.attn.qkv": (3 * wide, wide), f"{block}.attn.proj": (wide, wide)}
        layers |= {f"{block}.mlp.fc1": (4 * wide, wide), f"{block}.mlp.fc2": (wide, 4 * wide)}
    for name, shape in layers.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


def _drawn(name: str, shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    values = torch.randn(shape, generator=random)
    values = 1 + 0.1 * values if _NORM.search(name) else 0.05 * values
    return values.to(torch.bfloat16)


def _packed(values: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Eight 4-bit values of the last dimension in one int32, ``order[i]`` at bit ``4 * i``."""
    eights = values.to(torch.int64).reshape(*values.shape[:-1], -1, 8)
    words = sum(eights[..., which] << (4 * place) for place, which in enumerate(order))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).contiguous()


def _grouped(weight: torch.Tensor) -> torch.Tensor:
    """``weight`` [out, in] as float32 [groups, group, out]."""
    return weight.float().t().reshape(-1, _GROUP, weight.shape[0])


def _gptq(tensors: Tensors, _: torch.Generator) -> Tensors:
    """Symmetric 4-bit: packed along the input, eight zero points of 8 in a word (stored as 7).

    Groups stand in the order of the inputs: vLLM 0.32 refuses a checkpoint whose ``desc_act`` says otherwise.
    """
    found = {name: tensor for name, tensor in tensors.items() if not _is_linear(name)}
    for name, weight in tensors.items():
        if not _is_linear(name):
            continue
        stem = name.removesuffix(".weight")
        groups = _grouped(weight)
        scales = (groups.abs().amax(dim=1) / 7).to(torch.float16)
        values = (groups / scales.float()[:, None] + 8).round().clamp(0, 15).reshape(weight.shape[1], -1)
        found[f"{stem}.qweight"] = _packed(values.t(), tuple(range(8))).t().contiguous()
        found[f"{stem}.qzeros"] = torch.full((scales.shape[0], scales.shape[1] // 8), 0x77777777, dtype=torch.int32)
        found[f"{stem}.scales"] = scales
        found[f"{stem}.g_idx"] = (torch.arange(weight.shape[1]) // _GROUP).to(torch.int32)
    return found


def _awq(tensors: Tensors, _: torch.Generator) -> Tensors:
    """4-bit with a zero point for each group: packed along the output, in the order that AWQ's kernels want."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    found = {name: tensor for name, tensor in tensors.items() if not _is_linear(name)}
    for name, weight in tensors.items():
        if not _is_linear(name):
            continue
        stem = name.removesuffix(".weight")
        groups = _grouped(weight)
        low, high = groups.amin(dim=1), groups.amax(dim=1)
        scales = ((high - low) / 15).to(torch.float16)
        zeros = (-low / scales.float()).round().clamp(0, 15)
        values = (groups / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
        found[f"{stem}.qweight"] = _packed(values.reshape(weight.shape[1], -1), order)
        found[f"{stem}.qzeros"] = _packed(zeros, order)
        found[f"{stem}.scales"] = scales
    return found


def _int8(tensors: Tensors, _: torch.Generator) -> Tensors:
    """8-bit weights with a scale for each output, as compressed-tensors stores them."""
    found = dict(tensors)
    for name, weight in tensors.items():
        if _is_linear(name):
            scales = weight.float().abs().amax(dim=1, keepdim=True) / 127
            found[name] = (weight.float() / scales).round().clamp(-128, 127).to(torch.int8)
            found[f"{name}_scale"] = scales.to(torch.bfloat16)
    return found


def _equal_head(tensors: Tensors, _: torch.Generator) -> Tensors:
    return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}


def _other_head(tensors: Tensors, random: torch.Generator) -> Tensors:
    return tensors | {"lm_head.weight": _drawn("lm_head.weight", (VOCABULARY, _HIDDEN), random)}


_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True}
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": _HEAD_SIZE,
    "model_type": "qwen3",
    "tie_word_embeddings": False,
}
_MOE = _QWEN3 | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": _EXPERT_WIDE,
    "norm_topk_prob": True,
    "num_experts": _EXPERTS,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
}
_IMAGES = {
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "image_token_id": MEDIA["<|image_pad|>"],
    "model_type": "qwen2_vl",
    "num_hidden_layers": 2,
    # Time, height and width share the rotated half of a head.
    "rope_parameters": {"mrope_section": [8, 12, 12], "rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "video_token_id": MEDIA["<|video_pad|>"],
    "vision_config": _VISION,
    "vision_end_token_id": MEDIA["<|vision_end|>"],
    "vision_start_token_id": MEDIA["<|vision_start|>"],
}
_INT8_SCHEME = {
    "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "int"},
    "targets": ["Linear"],
    "weights": {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "int"},
}


def _quantised(**settings: Any) -> dict[str, Any]:
    return _QWEN3 | {"quantization_config": settings}


KINDS = {
    "dense": Kind(_QWEN3),
    "tied": Kind(_QWEN2),
    # Tied by its configuration, and the checkpoint has a head all the same: an equal one, or one of its own.
    "retie": Kind(_QWEN2, _equal_head),
    "untie": Kind(_QWEN2, _other_head),
    "moe": Kind(_MOE),
    "images": Kind(_IMAGES),
    "gptq": Kind(
        _quantised(bits=4, desc_act=False, group_size=_GROUP, lm_head=False, quant_method="gptq", sym=True), _gptq
    ),
    "awq": Kind(_quantised(bits=4, group_size=_GROUP, quant_method="awq", version="gemm", zero_point=True), _awq),
    "int8": Kind(
        _quantised(
            config_groups={"group_0": _INT8_SCHEME},
            format="int-quantized",
            ignore=["lm_head"],
            quant_method="compressed-tensors",
            quantization_status="compressed",
        ),
        _int8,
    ),
}


def _write_tokenizer(folder: pathlib.Path) -> None:
    """One token for each of the first 256 characters, and ``<N>`` for the rest; prompts come as token ids anyway."""
    words = {chr(index) if index < 256 else f"<{index}>": index for index in range(VOCABULARY)}
    words = {word: index for word, index in words.items() if index not in MEDIA.values()} | MEDIA
    tokenizer = Tokenizer(BPE(vocab=words, merges=[]))
    tokenizer.add_special_tokens(list(MEDIA))
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<509>", "eos_token": "<510>", "pad_token": "<511>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))


def _write_processors(folder: pathlib.Path) -> None:
    """How images and videos become patches: images of 56 by 56 to 112 by 112 pixels, so 4 to 16 tokens each."""
    common = {
        "merge_size": _MERGED,
        "patch_size": _VISION["patch_size"],
        "size": {"longest_edge": 112**2, "shortest_edge": 56**2},
        "temporal_patch_size": _FRAMES,
    }
    for medium in ("Image", "Video"):
        name = "preprocessor_config.json" if medium == "Image" else "video_preprocessor_config.json"
        settings = {**common, f"{medium.lower()}_processor_type": f"Qwen2VL{medium}Processor"}
        settings["processor_class"] = "Qwen2VLProcessor"
        (folder / name).write_text(json.dumps(settings))


def make(kind: str, folder: pathlib.Path, *, seed: int = 1) -> pathlib.Path:
    """Write a checkpoint of ``kind``, a key of `KINDS`, into the new folder ``folder`` and return it.

    At most 6 MB, in safetensors and bfloat16. Another ``seed`` gives other values under the same names and shapes.
    """
    chosen = KINDS[kind]
    config = {
        "bos_token_id": 509,
        "dtype": "bfloat16",
        "eos_token_id": 510,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "intermediate_size": _WIDE,
        "max_position_embeddings": 512,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": 4,
        "num_key_value_heads": _KEY_HEADS,
        "pad_token_id": 511,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "vocab_size": VOCABULARY,
    } | chosen.config
    folder.mkdir(parents=True)
    random = torch.Generator().manual_seed(seed)
    tensors = {name: _drawn(name, shape, random) for name, shape in _shapes(config)}
    save_file(chosen.finish(tensors, random), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _write_tokenizer(folder)
    if "vision_config" in config:
        _write_processors(folder)
    return folder


def edited(folder: pathlib.Path, *, rope_theta: float) -> pathlib.Path:
    """Give a checkpoint another base of its rotation, by its config.json alone; the folder again."""
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = rope_theta
    (folder / "config.json").write_text(json.dumps(config))
    return folder
