"""A restore's blob comes into the page cache while the engine builds its model, and no start depends on that."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import threading

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, errors, settings
from coldsnap.adapters.filling import FAILED, Filling, for_the_next_start

keep_cached = sys.modules["coldsnap.keep_cached"]  # the package has the function under this name
WAIT_S = 60  # far beyond what it takes
COLD = 0.1  # opening an artifact reads its header, and the kernel reads ahead
WARM = 0.95  # a machine short of memory gives pages up at once
WEIGHTS = {"w": np.random.default_rng(1).integers(0, 256, 20 * settings.MIB + 5, np.uint8)}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLDSNAP_KEEP_CACHED", "yes")  # however much memory the machine has left
    monkeypatch.delenv("COLDSNAP_HYDRATION_BACKEND", raising=False)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """An artifact whose blob is not in the page cache."""
    path = tmp_path / "artifact"
    coldsnap.capture(WEIGHTS, path)
    with blob_of(path).open("rb") as blob:
        os.fsync(blob.fileno())
        os.posix_fadvise(blob.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path) > COLD:
        pytest.skip("the test's folder keeps its files in memory")
    return path


def blob_of(path: pathlib.Path) -> pathlib.Path:
    return path / "shard-00-00-00" / "weights.safetensors"


def resident(path: pathlib.Path) -> float:
    there, nbytes = _native.residency(str(blob_of(path)))
    return float(there / nbytes)


def fill(filling: Filling) -> None:
    """What the engine asks for once its model is built."""
    found = {"w": np.zeros_like(WEIGHTS["w"])}
    filling.fill(found)
    assert (found["w"] == WEIGHTS["w"]).all()
    assert filling.receipt is not None and filling.receipt.ok


@pytest.mark.parametrize("backend", ["", "auto", "buffered", "python"])
def test_the_blob_comes_in_while_the_model_is_built(
    path: pathlib.Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_HYDRATION_BACKEND", backend)
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:
        assert filling.ahead is not None
        assert filling.ahead.wait(WAIT_S)  # nobody has asked for a byte yet
        assert filling.ahead.reason["code"] == "keep_cached"
        assert resident(path) > WARM
        fill(filling)
        assert filling.receipt is not None
        assert (filling.receipt.residency["before"] or 0) > WARM


@pytest.mark.parametrize("backend", ["direct", "gds"])
def test_what_reads_past_the_page_cache_leaves_it_alone(
    path: pathlib.Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_HYDRATION_BACKEND", backend)
    before = set(threading.enumerate())
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:
        assert filling.ahead is None
        assert {thread.name for thread in set(threading.enumerate()) - before} <= {"coldsnap-prepare"}
    assert resident(path) < COLD


def test_the_reader_ends_before_the_restore_begins(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that read the same file would only hold each other up."""
    reading, stopped, read, stop = threading.Event(), threading.Event(), keep_cached._read, keep_cached.KeepCached.stop

    def one_piece(*arguments: object) -> None:
        read(*arguments)
        reading.set()
        stopped.wait(WAIT_S)

    def stopping(reader: coldsnap.KeepCached) -> None:
        reader._stop.set()
        stopped.set()
        stop(reader)

    monkeypatch.setattr(keep_cached, "_read", one_piece)
    monkeypatch.setattr(keep_cached.KeepCached, "stop", stopping)
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:
        assert reading.wait(WAIT_S)
        fill(filling)
        assert stopped.is_set()
        assert filling.ahead is not None
        assert filling.ahead.wait(0)
        assert filling.ahead.reason["code"] == "keep_cached_stopped"


def test_a_model_that_fails_to_build_ends_the_reader(path: pathlib.Path) -> None:
    ahead: list[coldsnap.KeepCached | None] = []
    with coldsnap.open(path) as artifact, contextlib.suppress(ZeroDivisionError), Filling(artifact, "host") as filling:
        ahead.append(filling.ahead)
        raise ZeroDivisionError
    (found,) = ahead
    assert found is not None
    assert found.wait(0)


@pytest.mark.parametrize("policy", ["no", "always"])
def test_without_the_page_cache_the_restore_is_the_same(
    path: pathlib.Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_KEEP_CACHED", policy)
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:
        code = None if filling.ahead is None else filling.ahead.reason["code"]
        assert code == ("keep_cached_off" if policy == "no" else None)
        fill(filling)


def test_behind_a_capture_the_blob_comes_in_for_the_next_start(path: pathlib.Path) -> None:
    before = set(threading.enumerate())
    reason = for_the_next_start(lambda: coldsnap.open(path))
    assert reason["code"] == "keep_cached"
    (reader,) = set(threading.enumerate()) - before
    reader.join(WAIT_S)  # the artifact is closed by now
    assert resident(path) > WARM


def test_what_can_t_be_opened_is_said_and_not_raised(path: pathlib.Path) -> None:
    blob_of(path).unlink()
    reason = for_the_next_start(lambda: coldsnap.open(path))
    assert reason["code"] == FAILED
    assert "not brought into the page cache for the next start" in reason["detail"]
    assert "weights.safetensors" in reason["detail"]


def test_a_policy_that_nobody_knows_is_said_and_not_raised(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_KEEP_CACHED", "always")
    reason = for_the_next_start(lambda: coldsnap.open(path))
    assert reason["code"] == FAILED
    assert "COLDSNAP_KEEP_CACHED: 'always'" in reason["detail"]


def test_the_receipt_is_the_first_fill_s(path: pathlib.Path) -> None:
    said: list[tuple[int, int]] = []
    with coldsnap.open(path) as artifact:
        with Filling(artifact, "host", lambda done, total: said.append((done, total))) as filling:
            fill(filling)
            first, count = filling.receipt, len(said)
            filling.fill({}, partial=True)
            assert filling.receipt is first
            assert len(said) == count > 0
        with pytest.raises(errors.RequestInvalidError, match="was closed"):
            fill(filling)
