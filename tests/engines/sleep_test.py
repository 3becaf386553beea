"""Weights that are gone come back in their place, in all ranks, or none of them counts.

A CPU's memory can't be given back, so the weights are spoiled where they are; ``gpu/sleep.py`` is the same with a GPU.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, flip
from tests.engines.harness import Answer, Place, Start

_SPOILING = "tests.engines.spoiler.Spoiling"
_ENGINE = {"worker_extension_cls": _SPOILING, "enable_prefix_caching": False}
_GENERATE = ("generate",)


def rpc(method: str, *arguments: Any) -> tuple[Any, ...]:
    return ("rpc", f"coldsnap_{method}", *arguments)


def by_extension(start: Start, store: pathlib.Path, *steps: tuple[Any, ...], mode: str = "auto") -> Start:
    return dataclasses.replace(by_coldsnap(start, store, mode), engine=_ENGINE, steps=steps)


def answered(answer: Answer, number: int) -> Any:
    """What a step gave; it must not have failed."""
    step = answer.steps[number]
    assert "answer" in step, (step, answer.log[-3000:])
    return step["answer"]


def failed(answer: Answer, number: int) -> str:
    """Why a step failed."""
    step = answer.steps[number]
    assert "error" in step, step
    text: str = step["error"]
    return text


def test_spoiled_weights_are_named_and_come_back(tmp_path: pathlib.Path) -> None:
    start = Start(models.make("dense", tmp_path / "model"))
    store, place = tmp_path / "store", Place(tmp_path)
    steps = (_GENERATE, rpc("verify"), rpc("test_spoil"), rpc("verify"), rpc("hydrate"), rpc("verify"), _GENERATE)
    (captured,) = place.start(by_extension(start, store, *steps, rpc("test_move"), rpc("hydrate")))
    several = dataclasses.replace(start, processes=True)
    (restored,) = place.start(by_extension(several, store, *steps, rpc("release"), mode="restore"))

    assert captured.lines("coldsnap: captured "), captured.log[-4000:]
    assert restored.outputs == captured.outputs, restored.log[-4000:]
    for answer in (captured, restored):
        (whole,), (spoiled,), (filled,), (again,) = (answered(answer, number) for number in (1, 3, 4, 5))
        assert whole["equal"] and again["equal"] and not spoiled["equal"]
        assert any("self_attn.qkv_proj.weight" in line for line in spoiled["different"])
        assert filled["payload_bytes"] > 1 << 20 and filled["verified"] == "crc32+sha256" and not filled["woken"]
        assert answered(answer, 6) == answered(answer, 0)
    assert len(restored.lines("coldsnap: restored ")) == 2
    assert [receipt["operation"] for receipt in restored.receipts] == ["hydrate", "hydrate"]
    (moved,) = answered(captured, 7)
    assert f"1 weights are not where they were at the end of loading: {moved};" in failed(captured, 8)
    assert "started without sleep mode" in failed(restored, 7)


def test_damage_of_one_rank_fails_both_and_is_remembered(tmp_path: pathlib.Path) -> None:
    start = Start(models.make("moe", tmp_path / "model"), ranks=2)
    store, copy = tmp_path / "store", tmp_path / "copy"
    place = Place(tmp_path)
    (captured,) = place.start(by_extension(start, store, _GENERATE))
    assert captured.lines("coldsnap: captured "), captured.log[-4000:]
    (artifact,) = artifacts(store)
    shutil.copytree(artifact, copy)
    flip(copy / "shard-00-01-00" / "weights.safetensors")
    mended = (_GENERATE, rpc("test_spoil", 1), rpc("verify"), rpc("hydrate"), _GENERATE)
    damaged = (rpc("hydrate", str(copy)), rpc("verify"), rpc("test_poisoned"), rpc("hydrate"))
    (answer,) = place.start(by_extension(start, store, *mended, *damaged))

    assert answer.outputs == captured.outputs, answer.log[-4000:]
    assert [each["equal"] for each in answered(answer, 2)] == [True, False]
    assert [(each["rank"], each["shard"]) for each in answered(answer, 3)] == [
        (0, "shard-00-00-00"),
        (1, "shard-00-01-00"),
    ]
    assert answered(answer, 4) == answered(answer, 0)
    for part in ("rank 1: ", "is now under quarantine", "mean nothing: start the engine anew"):
        assert part in failed(answer, 5)
    assert [each["equal"] for each in answered(answer, 6)] == [True, False]
    first, second = answered(answer, 7)
    assert first[0] == 0
    assert second[0] == second[1] > 0
    assert "is under quarantine (data_loss" in failed(answer, 8)


def test_weights_of_no_artifact_are_left_alone(tmp_path: pathlib.Path) -> None:
    start = Start(models.make("dense", tmp_path / "model"))
    ours = by_extension(start, tmp_path / "store", _GENERATE, rpc("hydrate"), rpc("verify"), _GENERATE)
    unfinished = dataclasses.replace(ours, environment={"COLDSNAP_TEST_STRATEGY": "loaded"})
    plain = dataclasses.replace(ours, load_format="auto", extra={})
    for answer, why in zip(
        Place(tmp_path).start(unfinished, plain),
        ("before post-processing (strategy loaded)", "neither captured nor restored"),
        strict=True,
    ):
        assert why in failed(answer, 1), answer.log[-4000:]
        assert why in failed(answer, 2)
        assert "start the engine anew" in failed(answer, 1)
        assert answered(answer, 3) == answered(answer, 0)
