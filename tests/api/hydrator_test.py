"""A Hydrator restores as `coldsnap.hydrate` does, and makes ring and threads once."""

import os
import pathlib
import threading

import pytest

import coldsnap
from coldsnap import profile
from tests.api import helpers
from tests.api.helpers import POISON, SMALL_RING


def test_restores_again_and_again(tmp_path: pathlib.Path) -> None:
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    threads = len(os.listdir("/proc/self/task"))
    with coldsnap.Hydrator(backend="buffered", **SMALL_RING) as hydrator:
        assert hydrator.prepare("host") > 0
        prepared = len(os.listdir("/proc/self/task"))
        assert prepared > threads
        for _ in range(3):
            destinations = helpers.untouched_like(tensors)
            receipt = hydrator.hydrate(artifact, destinations)
            helpers.assert_same_bytes(destinations, tensors)
            assert receipt.settings["queue_depth"] == {"value": 2, "source": "explicit"}
            assert len(os.listdir("/proc/self/task")) == prepared
    assert len(os.listdir("/proc/self/task")) == threads


def test_goes_on_after_a_cancelled_restore(tmp_path: pathlib.Path) -> None:
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    with coldsnap.Hydrator(backend="auto", **SMALL_RING) as hydrator:
        destinations = helpers.untouched_like(tensors)
        cancel = threading.Event()
        with pytest.raises(coldsnap.Cancelled):
            hydrator.hydrate(artifact, destinations, cancel=cancel, progress=lambda done, total: cancel.set())
        assert helpers.every_byte_is(destinations, POISON)
        hydrator.hydrate(artifact, destinations)
        helpers.assert_same_bytes(destinations, tensors)


def test_a_closed_one_refuses(tmp_path: pathlib.Path) -> None:
    tensors = {"w": helpers.random_bytes(1000)}
    artifact = helpers.write(tmp_path / "artifact", tensors)
    hydrator = coldsnap.Hydrator(backend="auto")
    hydrator.close()
    with pytest.raises(coldsnap.RequestInvalidError, match="closed"):
        hydrator.hydrate(artifact, helpers.untouched_like(tensors))


def test_the_provider_python_has_nothing_to_prepare() -> None:
    assert coldsnap.Hydrator().prepare("host") == 0.0


def test_a_profile_is_used_and_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_PROFILE", str(tmp_path / "state" / "profile.json"))
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    entry = profile.Entry(
        key=profile.key_of(artifact, "host"),
        direct=profile.Best(read_threads=1, chunk_bytes=65536, queue_depth=3, bytes_per_second=1e9),
        buffered=profile.Best(read_threads=2, chunk_bytes=65536, queue_depth=5, bytes_per_second=2e9),
        ceilings=profile.Ceilings(h2d=None, direct_read=1e9, page_cache=4e9),
        measured_at="2026-11-29T12:00:00Z",
        commit=None,
    )
    profile.update(entry, os.environ)
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, backend="auto", queue_depth=4)
    helpers.assert_same_bytes(destinations, tensors)
    assert receipt.settings["read_threads"] == {"value": 2, "source": "profile"}
    assert receipt.settings["direct_read_threads"] == {"value": 1, "source": "profile"}
    assert receipt.settings["queue_depth"] == {"value": 4, "source": "explicit"}
    assert "profile" in helpers.codes(receipt)
    assert receipt.ceiling_ratio is not None
    assert receipt.ceiling_ratio * receipt.wall_s * 4e9 == pytest.approx(receipt.payload_bytes)
