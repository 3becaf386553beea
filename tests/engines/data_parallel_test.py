"""Data-parallel ranks. Without experts they are engines of their own, with equal weights; the experts of a model they have
together, a piece of each expert to every rank.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import types

import pytest

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require, strategies, why_normal
from tests.engines.harness import PROMPTS, Place, Start, free_port, receipts_in


def _ranks(start: Start) -> tuple[Start, Start]:
    """The two ranks of one launch, each of which somebody starts as a process with an engine in it."""
    port = str(free_port())
    shared = {"VLLM_DP_MASTER_IP": "127.0.0.1", "VLLM_DP_MASTER_PORT": port, "VLLM_DP_SIZE": "2"}
    first, second = (
        dataclasses.replace(
            start,
            processes=True,
            environment={**start.environment, **shared, "VLLM_DP_RANK": rank, "VLLM_DP_RANK_LOCAL": rank},
        )
        for rank in ("0", "1")
    )
    return first, second


@pytest.mark.parametrize(
    ("experts", "spread"),
    [
        ({"is_moe": False, "data": 2}, False),
        ({"is_moe": True, "data": 1}, False),
        ({"is_moe": True, "data": 2}, True),
        ({"is_moe": True, "context": 2}, True),
        ({"is_moe": True, "whole": True}, True),
        ({"data": 2}, False),  # a version that does not say: replicas that differ are refused by their bytes
    ],
    ids=["dense", "experts of one", "experts", "experts in a context", "whole experts", "unknown"],
)
def test_where_the_place_among_tensors_does_not_name_a_rank_s_weights(experts: dict[str, int], spread: bool) -> None:
    from coldsnap.adapters.vllm import compat

    parallel = types.SimpleNamespace(
        data_parallel_size=experts.get("data", 1),
        prefill_context_parallel_size=experts.get("context", 1),
        enable_expert_parallel=experts.get("whole", False),
    )
    model = types.SimpleNamespace(**{name: value for name, value in experts.items() if name == "is_moe"})
    config = types.SimpleNamespace(parallel_config=parallel, model_config=model)
    assert compat._spreads_experts(config) == spread


def test_ranks_that_share_experts_have_a_shard_each_and_take_no_lone_engine_s(tmp_path: pathlib.Path) -> None:
    """On a CPU vLLM loads such ranks and can't run them: they exchange tokens by what only GPUs have. So nothing answers
    here, with and without an artifact, and what is shown is what the ranks capture, and that each gets its own back.
    """
    model, store = models.make("moe", tmp_path / "model"), tmp_path / "store"
    start, place = Start(model), Place(tmp_path)
    (lone,) = place.start(by_coldsnap(start, store))
    require(lone, lone, "captured")
    (whole,) = artifacts(store)

    normal = place.start(*_ranks(start))
    captured = place.start(*_ranks(by_coldsnap(start, store)))
    restored = place.start(*_ranks(by_coldsnap(start, store, mode="restore")))

    assert why_normal(captured[0]) == (
        f"the artifact in {store} is of another start: parallel.data_parallel_size was 1 and is 2"
    )
    (artifact,) = set(artifacts(store)) - {whole}
    assert sorted(path.name for path in artifact.glob("shard-*")) == ["shard-00-00-00", "shard-00-00-01"]
    assert len(strategies(artifact)) == 2
    for rank in (0, 1):
        assert not normal[rank].served and normal[rank].lines("] NotImplementedError"), normal[rank].log[-4000:]
        for answer, operation in ((captured[rank], "capture"), (restored[rank], "hydrate")):
            assert answer.lines("] NotImplementedError"), answer.log[-4000:]
            assert [(receipt["operation"], receipt["ok"]) for receipt in answer.receipts] == [(operation, True)]
    assert [len(answer.lines("coldsnap: restored ")) for answer in restored] == [1, 0]


def test_engines_of_one_server_have_one_artifact(tmp_path: pathlib.Path) -> None:
    """Of a model without experts. Both capture it, and the second finds that the first has, or is at it."""
    model, store = models.make("dense", tmp_path / "model"), tmp_path / "store"
    place = Place(tmp_path)
    (normal,) = place.start(Start(model))
    start = dataclasses.replace(by_coldsnap(Start(model), store), engine={"data_parallel_size": 2})
    asked = [prompt for prompt in PROMPTS for _ in range(4)]  # the server deals them out to both
    for done, operation, count in (("captured", "capture", None), ("restored", "hydrate", 2)):
        with place.serving(start) as server:
            outputs = [server.complete(prompt) for prompt in asked]
        said = [line for line in server.log.splitlines() if "coldsnap: " in line]
        assert outputs == [output for output in normal.outputs for _ in range(4)]
        assert len(artifacts(store)) == 1
        found = [receipt for receipt in receipts_in(server.folder) if receipt["ok"]]
        assert {receipt["operation"] for receipt in found} == {operation}
        assert len([line for line in said if f"coldsnap: {done} " in line]) == len(found)
        assert len(found) == count or count is None
        assert len(set(re.findall(r"\(Worker pid=(\d+)\)", "\n".join(said)))) == 2, said
