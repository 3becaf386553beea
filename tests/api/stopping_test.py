"""Stopping a restore: by an event, an exception of the caller's, or Ctrl-C; and what progress says meanwhile."""

import pathlib
import signal
import threading
from typing import Any

import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import BACKENDS, MIB, POISON, SMALL_RING, UNTOUCHED

TOTAL = 24 * MIB + 5


@pytest.fixture
def tensors() -> dict[str, Any]:
    return {"large": helpers.random_bytes(TOTAL - 1000), "small": helpers.random_bytes(1000, 8)}


@pytest.fixture
def artifact(tmp_path: pathlib.Path, tensors: dict[str, Any]) -> pathlib.Path:
    return helpers.write(tmp_path / "artifact", tensors)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    helpers.needs(request.param, tmp_path)
    return request.param


def test_progress_rises_to_the_total(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    calls: list[tuple[int, int]] = []
    threads: set[int] = set()

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        threads.add(threading.get_ident())

    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, backend=backend, progress=progress, **SMALL_RING)
    helpers.assert_same_bytes(destinations, tensors)
    assert {total for _, total in calls} == {TOTAL}
    done = [done for done, _ in calls]
    assert done == sorted(set(done))
    assert done[-1] == TOTAL
    assert threads == {threading.get_ident()}
    assert len(calls) <= 20 * receipt.wall_s + 3


def test_progress_of_nothing(tmp_path: pathlib.Path, backend: str) -> None:
    calls: list[tuple[int, int]] = []
    path = helpers.write(tmp_path / "empty", {})
    coldsnap.hydrate(path, {}, backend=backend, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 0)]


def test_an_event_that_is_set_already(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    cancel = threading.Event()
    cancel.set()
    destinations = helpers.untouched_like(tensors)
    with pytest.raises(coldsnap.Cancelled) as caught:
        coldsnap.hydrate(artifact, destinations, backend=backend, cancel=cancel)
    assert helpers.every_byte_is(destinations, UNTOUCHED)
    assert caught.value.exit_code == 130
    assert caught.value.receipt is not None
    assert caught.value.receipt.error is not None
    assert caught.value.receipt.error["code"] == "cancelled"


def hydrate_until_stopped(
    artifact: pathlib.Path, tensors: dict[str, Any], backend: str, stop: Any, cancel: threading.Event | None = None
) -> tuple[BaseException, dict[str, Any]]:
    """Restore with a progress callback that calls ``stop`` once, when bytes are under way."""
    destinations = helpers.untouched_like(tensors)
    stopped = False

    def progress(done: int, total: int) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            stop()

    with pytest.raises(BaseException) as caught:
        coldsnap.hydrate(artifact, destinations, backend=backend, progress=progress, cancel=cancel, **SMALL_RING)
    assert stopped
    return caught.value, destinations


def untouched_or_poisoned(destinations: dict[str, Any]) -> bool:
    # Which of the two depends on whether a copy had been submitted; a mixture never happens.
    return helpers.every_byte_is(destinations, POISON) or helpers.every_byte_is(destinations, UNTOUCHED)


def test_an_event_in_the_middle(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    cancel = threading.Event()
    failure, destinations = hydrate_until_stopped(artifact, tensors, backend, cancel.set, cancel)
    assert isinstance(failure, coldsnap.Cancelled)
    assert untouched_or_poisoned(destinations)


def test_an_event_at_the_very_last_moment(artifact: pathlib.Path, tensors: dict[str, Any]) -> None:
    cancel = threading.Event()
    destinations = helpers.untouched_like(tensors)

    def progress(done: int, total: int) -> None:
        if done == total:
            cancel.set()

    with pytest.raises(coldsnap.Cancelled, match=f"cancelled after {TOTAL} of them"):
        coldsnap.hydrate(artifact, destinations, backend="python", progress=progress, cancel=cancel, **SMALL_RING)
    assert helpers.every_byte_is(destinations, POISON)


def test_an_exception_of_the_caller_s(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    def stop() -> None:
        raise LookupError("of the caller's")

    failure, destinations = hydrate_until_stopped(artifact, tensors, backend, stop)
    assert isinstance(failure, LookupError)
    assert untouched_or_poisoned(destinations)
    assert failure.receipt.error["code"] == "internal"  # type: ignore[attr-defined]


def test_ctrl_c(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    def stop() -> None:
        signal.raise_signal(signal.SIGINT)

    failure, destinations = hydrate_until_stopped(artifact, tensors, backend, stop)
    assert isinstance(failure, KeyboardInterrupt)
    assert untouched_or_poisoned(destinations)
    assert failure.receipt.error["code"] == "cancelled"  # type: ignore[attr-defined]


def test_ctrl_c_without_a_progress_callback(tmp_path: pathlib.Path, backend: str) -> None:
    tensors = {"w": helpers.random_bytes(128 * MIB)}
    artifact = helpers.write(tmp_path / "large", tensors)
    destinations = helpers.untouched_like(tensors)
    main = threading.get_ident()
    timer = threading.Timer(0.02, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            coldsnap.hydrate(artifact, destinations, backend=backend, **SMALL_RING)
            timer.join()  # a machine that is done in 20 ms gets its interrupt here
        assert untouched_or_poisoned(destinations) or destinations["w"].tobytes() == tensors["w"].tobytes()
    finally:
        timer.join()


def test_the_memory_is_free_again_after_a_failure(
    artifact: pathlib.Path, tensors: dict[str, Any], backend: str
) -> None:
    cancel = threading.Event()
    _, destinations = hydrate_until_stopped(artifact, tensors, backend, cancel.set, cancel)
    coldsnap.hydrate(artifact, destinations, backend=backend)
    helpers.assert_same_bytes(destinations, tensors)


def test_a_second_restore_into_the_same_memory(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    destinations = helpers.untouched_like(tensors)
    refusals: list[coldsnap.Error] = []

    def progress(done: int, total: int) -> None:
        if not refusals:
            with pytest.raises(coldsnap.PolicyRefusedError, match="another restore is running") as caught:
                coldsnap.hydrate(artifact, {"small": destinations["small"]}, backend=backend, partial=True)
            refusals.append(caught.value)

    coldsnap.hydrate(artifact, destinations, backend=backend, progress=progress)
    helpers.assert_same_bytes(destinations, tensors)
    assert len(refusals) == 1


def test_restores_side_by_side(artifact: pathlib.Path, tensors: dict[str, Any], backend: str) -> None:
    everybody = [helpers.untouched_like(tensors) for _ in range(4)]
    failures: list[BaseException] = []

    def restore(destinations: dict[str, Any]) -> None:
        try:
            coldsnap.hydrate(opened, destinations, backend=backend, **SMALL_RING)
        except BaseException as failure:
            failures.append(failure)

    with coldsnap.open(artifact) as opened:
        threads = [threading.Thread(target=restore, args=(destinations,)) for destinations in everybody]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    for destinations in everybody:
        helpers.assert_same_bytes(destinations, tensors)
