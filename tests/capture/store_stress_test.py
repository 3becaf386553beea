"""Writers, readers and collectors in one store at the same time: whatever is opened is whole, and stays it."""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading

import numpy as np

import coldsnap
from coldsnap import Store
from tests.capture import helpers

ROUNDS = 25
IDENTITIES = ({"model": "a"}, {"model": "b"})


def weights(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(20_000, value), "small": np.full(5, value, np.float32)}


def write(store: Store, identity: dict[str, str], backend: str) -> int:
    for number in range(ROUNDS):
        coldsnap.capture(weights(float(number)), store=store, identity=identity, replace=True, backend=backend)
    return ROUNDS


def collect(store: Store, done: threading.Event) -> int:
    removed = 0
    while not done.is_set():
        removed += len(store.gc(max_bytes=0))
    return removed


def read(store: Store, identity: dict[str, str], done: threading.Event) -> int:
    """Open whatever is current, restore it, and see that it is of one capture; how often that was so."""
    restored = 0
    while not done.is_set():
        if store.current(identity) is None:
            continue  # nothing was written yet
        with store.open(identity) as artifact:
            found = helpers.destinations(artifact)
            coldsnap.hydrate(artifact, found, backend="buffered", chunk_bytes="64KiB", read_threads=1)
        values = {float(value) for array in found.values() for value in array.reshape(-1)}
        assert len(values) == 1, values
        restored += 1
    return restored


def test_nobody_sees_half_of_anything(tmp_path: pathlib.Path) -> None:
    store, done = Store(tmp_path), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        writers = [threads.submit(write, store, IDENTITIES[0], "python")]
        writers += [threads.submit(write, store, IDENTITIES[1], "auto")]
        collectors = [threads.submit(collect, store, done) for _ in range(2)]
        readers = [threads.submit(read, store, identity, done) for identity in IDENTITIES]
        try:
            concurrent.futures.wait(writers, return_when=concurrent.futures.FIRST_EXCEPTION)
        finally:
            done.set()
        assert [writer.result() for writer in writers] == [ROUNDS, ROUNDS]
        assert all(reader.result() > 0 for reader in readers)
        assert sum(collector.result() for collector in collectors) > ROUNDS  # of 2 * ROUNDS, most went meanwhile

    store.gc(max_bytes=0)
    entries = store.ls()
    assert [entry.current for entry in entries] == [True, True]
    for entry in entries:
        assert coldsnap.verify(entry.path).ok
    for identity in IDENTITIES:
        with store.open(identity) as artifact:
            found = helpers.destinations(artifact)
            coldsnap.hydrate(artifact, found)
        helpers.assert_same_bits(found, weights(float(ROUNDS - 1)))
    assert helpers.names_in(tmp_path / ".trash") == []
    assert helpers.names_in(tmp_path / ".incoming") == []
