"""What another process does to a store between two calls of this one: each moment that matters, brought about by hand."""

from __future__ import annotations

import fcntl
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import Store, errors, stored
from coldsnap import artifact as opening
from coldsnap import store as module
from tests.capture import helpers

IDENTITY = {"model": "raced"}


def capture(store: Store, value: float) -> pathlib.Path:
    coldsnap.capture({"w": np.full(70_000, value, np.float32)}, store=store, identity=IDENTITY, replace=True)
    return current(store)


def current(store: Store) -> pathlib.Path:
    path = store.current(IDENTITY)
    assert path is not None
    return path


def blob_of(path: pathlib.Path) -> pathlib.Path:
    return path / "shard-00-00-00" / "weights.safetensors"


def value_of(artifact: coldsnap.Artifact) -> float:
    found = helpers.destinations(artifact)
    coldsnap.hydrate(artifact, found)
    return float(found["w"][0])


class Meanwhile:
    """Lets something happen before the n-th call of a function, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.happened = 0

    def before(self, owner: Any, name: str, what: Callable[[], object], nth: int = 1) -> None:
        real, calls = getattr(owner, name), 0

        def called(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == nth:
                what()
                self.happened += 1
            return real(*arguments, **more)

        self._patch.setattr(owner, name, called)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meanwhile]:
    made = Meanwhile(monkeypatch)
    yield made
    assert made.happened > 0


def test_a_collector_that_only_looks_is_waited_for(tmp_path: pathlib.Path) -> None:
    path = capture(Store(tmp_path), 1.0)
    fd = os.open(blob_of(path), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    looked = threading.Timer(0.2, os.close, [fd])
    looked.start()
    with coldsnap.open(path) as artifact:
        assert looked.finished.is_set()  # so it did wait
        assert value_of(artifact) == 1.0
    looked.join()


def test_a_collector_that_is_stuck_is_not_waited_for_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = capture(Store(tmp_path), 1.0)
    monkeypatch.setattr(opening, "_COLLECTED_WITHIN_S", 0.1)
    fd = os.open(blob_of(path), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(errors.IoError, match="it is being removed from its store"):
            coldsnap.open(path)
    finally:
        os.close(fd)


def test_what_was_removed_before_it_was_held_is_not_open(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    path = capture(store, 1.0)
    meanwhile.before(fcntl, "flock", lambda: store.gc(max_age_s=0, keep_current=False))
    with pytest.raises(errors.IoError, match="it was removed from its store"):
        coldsnap.open(path)


def test_another_one_that_became_current_is_opened(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    capture(store, 1.0)
    meanwhile.before(fcntl, "flock", lambda: (capture(store, 2.0), store.gc(max_bytes=0)))
    with store.open(IDENTITY) as artifact:
        assert value_of(artifact) == 2.0


def test_collected_and_captured_again_it_is_opened(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    path = capture(store, 1.0)
    meanwhile.before(module, "open_artifact", lambda: path.rename(tmp_path / "gone"))
    meanwhile.before(stored, "current_root", lambda: (tmp_path / "gone").rename(path), nth=2)
    with store.open(IDENTITY) as artifact:
        assert value_of(artifact) == 1.0


def test_what_is_damaged_is_not_tried_for_ever(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    (capture(store, 1.0) / "artifact.json").write_text("{")
    meanwhile.before(module, "open_artifact", lambda: None, nth=2)
    with pytest.raises(errors.FormatInvalidError):
        store.open(IDENTITY)


def test_current_is_the_one_that_came_back(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    path = capture(store, 1.0)
    path.rename(tmp_path / "gone")
    meanwhile.before(stored, "current_root", lambda: (tmp_path / "gone").rename(path), nth=2)
    assert store.current(IDENTITY) == path


def test_a_list_is_without_what_was_collected_meanwhile(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    path = capture(store, 1.0)
    meanwhile.before(stored, "described", lambda: path.rename(tmp_path / "gone"))
    assert store.ls() == []


def test_what_was_there_and_was_collected_is_written(tmp_path: pathlib.Path, meanwhile: Meanwhile) -> None:
    store = Store(tmp_path)
    first = capture(store, 1.0)
    capture(store, 2.0)
    meanwhile.before(module, "open_artifact", lambda: store.gc(max_bytes=0))
    assert capture(store, 1.0) == first
    with store.open(IDENTITY) as artifact:
        assert value_of(artifact) == 1.0
