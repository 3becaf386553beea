"""What a loader did is known in its worker, and a weight that was moved since then is named."""

import torch

from coldsnap.adapters.vllm import started
from coldsnap.adapters.vllm.started import Started

RESTORED = Started("restored", "a" * 64, "/artifact", "shard-00-00-00", {"model": "m"})


def model() -> torch.nn.Module:
    made = torch.nn.Module()
    made.weight = torch.nn.Parameter(torch.zeros(10))
    made.tied = made.weight
    made.register_buffer("scale", torch.ones(1))
    made.register_buffer("left_out", torch.empty(5, device="meta"))
    return made


def test_the_last_load_counts() -> None:
    started.note(RESTORED, model(), {1: 2})
    captured = RESTORED._replace(what="captured")
    started.note(captured, model(), {4096: 512})
    assert started.of_this_worker() == captured
    assert started.in_use() == {4096: 512}


def test_values_may_change_and_places_may_not() -> None:
    loaded = model()
    started.note(RESTORED, loaded, {})
    loaded.weight.data.fill_(7)
    loaded.another = torch.nn.Parameter(torch.zeros(3))
    assert started.moved(loaded) == []
    loaded.weight.data = loaded.weight.data.clone()
    loaded.tied = None
    del loaded.scale
    assert started.moved(loaded) == ["weight", "tied", "scale"]
