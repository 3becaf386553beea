"""Models that are built for torch.compile, as they are by default on a GPU: what was compiled is no weight and hides none.

On a CPU vLLM traces such a model once, and then either runs what it traced as it is, or has a C++ compiler make code of it
ahead of time, as it does on a GPU.
"""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, here, require, strategies
from tests.engines.harness import Place, Start

_ENGINE = {"enforce_eager": False, "worker_extension_cls": "coldsnap.adapters.vllm.worker.WorkerExtension"}
_STEPS = (("generate",), ("rpc", "coldsnap_verify"), ("generate",))
_TRACED = {"TORCH_COMPILE_DISABLE": "0", "VLLM_CPU_CI_ENV": "1"}
_AHEAD = {"TORCH_COMPILE_DISABLE": "0"}


@pytest.mark.parametrize(
    ("kind", "strategy", "environment", "said"),
    [
        ("dense", "meta", _TRACED, "disabling AOT compile"),
        ("gptq", "shape", _AHEAD, "AOT compil"),
    ],
    ids=["traced", "ahead of time"],
)
def test_a_compiled_model_is_captured_restored_and_compared_with_its_artifact(
    kind: str, strategy: str, environment: dict[str, str], said: str, tmp_path: pathlib.Path
) -> None:
    model, store, place = models.make(kind, tmp_path / "model"), tmp_path / "store", Place(tmp_path)
    start = Start(model, environment=environment, engine=_ENGINE, steps=_STEPS)
    normal, captured = place.start(dataclasses.replace(start, steps=_STEPS[:1]), by_coldsnap(start, store))
    (restored,) = place.start(by_coldsnap(start, store, mode="restore"))

    assert normal.served, normal.log[-4000:]
    for answer, done in ((captured, "captured"), (restored, "restored")):
        require(answer, normal, done)
        assert answer.lines(said), answer.log[-4000:]
        first, compared, again = (step.get("answer", step) for step in answer.steps)
        assert [each["equal"] for each in compared] == [True], compared
        assert again == first
    (artifact,) = artifacts(store)
    assert strategies(artifact) == [here(strategy)]
