"""Who reads weights is told before they go and after they are back, whatever else the worker does."""

from __future__ import annotations

import pytest

from coldsnap.adapters.vllm import engine


class Worker:
    """As vLLM's, as far as sleep mode goes; ``log`` has what happened."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def sleep(self, level: int = 1) -> str:
        self.log.append(f"sleep {level}")
        return "slept"

    def wake_up(self, tags: list[str] | None = None) -> str:
        self.log.append(f"wake {tags}")
        return "woken"


class Wrapper:
    """As vLLM's: what it has not, its worker has."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def __getattr__(self, name: str) -> object:
        return getattr(self.worker, name)


@pytest.mark.parametrize("wrapped", [True, False])
def test_around_sleep(wrapped: bool) -> None:
    log: list[str] = []
    worker = Worker(log)
    known = Wrapper(worker) if wrapped else worker
    engine.around_sleep(known, lambda: log.append("before"), lambda: log.append("after"))
    assert getattr(known, "sleep")(level=2) == "slept"  # noqa: B009  # as collective_rpc finds it
    assert getattr(known, "wake_up")(tags=["kv_cache"]) == "woken"  # noqa: B009
    assert log == ["before", "sleep 2", "wake ['kv_cache']"]
    assert getattr(known, "wake_up")(["weights"]) == "woken"  # noqa: B009
    assert getattr(known, "wake_up")() == "woken"  # noqa: B009
    assert log[3:] == ["wake ['weights']", "after", "wake None", "after"]


def test_who_keeps_it_from_sleeping_does() -> None:
    log: list[str] = []
    worker = Worker(log)

    def refuse() -> None:
        raise RuntimeError("still read")

    engine.around_sleep(worker, refuse, lambda: None)
    with pytest.raises(RuntimeError, match="still read"):
        worker.sleep()
    assert not log


def test_a_worker_without_sleep_mode_is_left_alone() -> None:
    engine.around_sleep(object(), lambda: None, lambda: None)
