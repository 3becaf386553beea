"""A checkpoint with an audio tower, made on the spot from a seed: Qwen2-Audio, which needs no package beside vLLM's.

For a matrix without `--model`, which asks what the machine and the engine cost, not the weights. Every parameter is
random, so a tensor that was not loaded shows in the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAST = "tokenizer_config.json"  # the file that is written when all others are there
VOCABULARY = 512
_SPECIAL = {"bos_token": 509, "eos_token": 510, "pad_token": 511}
_AUDIO_TOKENS = {"<|AUDIO|>": 506, "<|audio_bos|>": 507, "<|audio_eos|>": 508}
_LAYERS, _WIDTH, _WIDE, _HEADS, _KEY_HEADS, _HEAD_SIZE = 2, 256, 512, 4, 2, 64
_TOWER_LAYERS, _TOWER_WIDTH, _TOWER_WIDE, _MELS, _POSITIONS = 2, 64, 128, 128, 1500

_TEXT = {
    "hidden_act": "silu",
    "hidden_size": _WIDTH,
    "intermediate_size": _WIDE,
    "max_position_embeddings": 2048,  # half a minute of sound, which the engine tries, is 750 tokens
    "model_type": "qwen2",
    "num_attention_heads": _HEADS,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": _KEY_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
    **{f"{name}_id": value for name, value in _SPECIAL.items()},
}
_AUDIO = {
    "activation_function": "gelu",
    "d_model": _TOWER_WIDTH,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": _TOWER_WIDE,
    "encoder_layers": _TOWER_LAYERS,
    "max_source_positions": _POSITIONS,
    "model_type": "qwen2_audio_encoder",
    "num_mel_bins": _MELS,
}
_CONFIG = {
    "architectures": ["Qwen2AudioForConditionalGeneration"],
    "audio_config": _AUDIO,
    "audio_token_index": _AUDIO_TOKENS["<|AUDIO|>"],
    "dtype": "bfloat16",
    "model_type": "qwen2_audio",
    "text_config": _TEXT,
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
}
_SOUND = {
    "chunk_length": 30,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": _MELS,
    "hop_length": 160,
    "n_fft": 400,
    "processor_class": "Qwen2AudioProcessor",
    "return_attention_mask": True,
    "sampling_rate": 16000,
}

_Shape = tuple[str, tuple[int, ...]]


def make(folder: Path, seed: int = 1) -> Path:
    """Write the checkpoint, 4 MB in bfloat16, into the new folder ``folder`` and return it; needs torch."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> Any:
        values = torch.randn(shape, generator=random)
        values = 1 + 0.1 * values if name.endswith("norm.weight") else 0.05 * values
        return values.to(torch.bfloat16)

    folder.mkdir(parents=True)
    tensors = {name: drawn(name, shape) for name, shape in [*_text_shapes(), *_tower_shapes()]}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "config.json", _CONFIG)
    _write(folder / "preprocessor_config.json", _SOUND)
    _write_tokenizer(folder)
    return folder


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")


def _text_shapes() -> Iterator[_Shape]:
    yield "language_model.model.embed_tokens.weight", (VOCABULARY, _WIDTH)
    for index in range(_LAYERS):
        layer = f"language_model.model.layers.{index}"
        for name, heads in (("q", _HEADS), ("k", _KEY_HEADS), ("v", _KEY_HEADS)):
            yield from _affine(f"{layer}.self_attn.{name}_proj", heads * _HEAD_SIZE, _WIDTH)
        yield f"{layer}.self_attn.o_proj.weight", (_WIDTH, _HEADS * _HEAD_SIZE)
        yield f"{layer}.input_layernorm.weight", (_WIDTH,)
        yield f"{layer}.post_attention_layernorm.weight", (_WIDTH,)
        yield f"{layer}.mlp.gate_proj.weight", (_WIDE, _WIDTH)
        yield f"{layer}.mlp.up_proj.weight", (_WIDE, _WIDTH)
        yield f"{layer}.mlp.down_proj.weight", (_WIDTH, _WIDE)
    yield "language_model.model.norm.weight", (_WIDTH,)
    yield "language_model.lm_head.weight", (VOCABULARY, _WIDTH)


def _tower_shapes() -> Iterator[_Shape]:
    width = _TOWER_WIDTH
    yield from _affine("audio_tower.conv1", width, _MELS, 3)
    yield from _affine("audio_tower.conv2", width, width, 3)
    yield "audio_tower.embed_positions.weight", (_POSITIONS, width)
    for index in range(_TOWER_LAYERS):
        layer = f"audio_tower.layers.{index}"
        yield f"{layer}.self_attn.k_proj.weight", (width, width)
        for name in ("q_proj", "v_proj", "out_proj"):
            yield from _affine(f"{layer}.self_attn.{name}", width, width)
        yield from _affine(f"{layer}.self_attn_layer_norm", width)
        yield from _affine(f"{layer}.fc1", _TOWER_WIDE, width)
        yield from _affine(f"{layer}.fc2", width, _TOWER_WIDE)
        yield from _affine(f"{layer}.final_layer_norm", width)
    yield from _affine("audio_tower.layer_norm", width)
    yield from _affine("multi_modal_projector.linear", _WIDTH, width)


def _affine(name: str, *shape: int) -> Iterator[_Shape]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _write_tokenizer(folder: Path) -> None:
    """One token for each of the first 256 characters, and names for the rest; prompts come as token ids anyway."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    words = {chr(index) if index < 256 else f"<{index}>": index for index in range(VOCABULARY)}
    words = {word: index for word, index in words.items() if index not in _AUDIO_TOKENS.values()} | _AUDIO_TOKENS
    tokenizer = Tokenizer(BPE(vocab=words, merges=[]))
    tokenizer.add_special_tokens(list(_AUDIO_TOKENS))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {name: f"<{value}>" for name, value in _SPECIAL.items()}
    _write(folder / LAST, {"tokenizer_class": "PreTrainedTokenizerFast", **names})
