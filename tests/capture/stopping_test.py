"""Captures that end early, by a full drive, a failing call, a changed tensor or the caller: nothing is left of them."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import threading
from typing import Any

import numpy as np
import pytest

import coldsnap
from tests.capture import helpers
from tests.capture.helpers import Fault, fails


def tensors() -> dict[str, np.ndarray]:
    return {"large": helpers.random_bytes(9 << 20), "small": helpers.random_bytes(1000, 2)}


@pytest.mark.parametrize(
    ("call", "nth", "number", "kind", "message"),
    [
        (
            "posix_fallocate",
            1,
            errno.ENOSPC,
            coldsnap.NoSpaceError,
            r"reserve 9568256 bytes for weights.safetensors, with",
        ),
        ("posix_fallocate", 1, errno.EDQUOT, coldsnap.NoSpaceError, r"reserve 9568256 bytes"),
        ("posix_fallocate", 1, errno.EIO, coldsnap.IoError, r"reserve 9568256 bytes"),
        ("pwrite", 1, errno.EIO, coldsnap.IoError, "write 65536 bytes at offset 0 of weights.safetensors"),
        (
            "pwrite",
            3,
            errno.EIO,
            coldsnap.IoError,
            r"capture extent 0 \(large\): write 4194304 bytes at offset 4259840",
        ),
        ("pwrite", 5, errno.ENOSPC, coldsnap.NoSpaceError, r"capture extent 1 \(small\): write 1000 bytes"),
        ("pwrite", 6, errno.EIO, coldsnap.IoError, "of leaves.bin"),
        ("pwrite", 7, errno.EDQUOT, coldsnap.NoSpaceError, "of manifest.json"),
        ("fchmod", 1, errno.EPERM, coldsnap.IoError, "set the mode of weights.safetensors"),
        ("fsync", 1, errno.EIO, coldsnap.IoError, "sync weights.safetensors"),
        ("fsync", 2, errno.ENOSPC, coldsnap.NoSpaceError, "sync leaves.bin"),
        ("fsync", 3, errno.EIO, coldsnap.IoError, "sync manifest.json"),
        ("fsync", 4, errno.EIO, coldsnap.IoError, "sync folder shard-00-00-00"),
        ("mkdir", 1, errno.ENOSPC, coldsnap.NoSpaceError, "create folder shard-00-00-00"),
    ],
)
def test_a_call_that_fails(
    call: str,
    nth: int,
    number: int,
    kind: type[coldsnap.Error],
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_before = sorted(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        fault = Fault(patched, call, fails(number), nth)
        with pytest.raises(kind, match=message) as caught:
            coldsnap.capture(tensors(), tmp_path / "artifact", backend="python")
    assert fault.fired
    assert caught.value.native == ("errno", number)
    assert caught.value.receipt is not None
    assert not caught.value.receipt.ok
    assert helpers.names_in(tmp_path) == []
    assert sorted(os.listdir("/proc/self/fd")) == open_before


def test_short_writes_are_continued(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coldsnap.capture(tensors(), tmp_path / "whole", backend="python")
    with monkeypatch.context() as patched:
        fault = Fault(patched, "pwrite", lambda real, fd, data, at: real(fd, data[:1001], at), 2)
        coldsnap.capture(tensors(), tmp_path / "short", backend="python")
    assert fault.fired
    assert helpers.files_of(tmp_path / "short") == helpers.files_of(tmp_path / "whole")


def test_a_write_of_nothing_does_not_go_on_for_ever(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        fault = Fault(patched, "pwrite", lambda *_: 0, 2)
        with pytest.raises(coldsnap.IoError, match="wrote none"):
            coldsnap.capture(tensors(), tmp_path / "artifact", backend="python")
    assert fault.fired
    assert helpers.names_in(tmp_path) == []


def test_a_file_system_that_can_not_reserve(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coldsnap.capture(tensors(), tmp_path / "reserved", backend="python")
    with monkeypatch.context() as patched:
        fault = Fault(patched, "posix_fallocate", fails(errno.EOPNOTSUPP))
        coldsnap.capture(tensors(), tmp_path / "not", backend="python")
    assert fault.fired
    assert helpers.files_of(tmp_path / "not") == helpers.files_of(tmp_path / "reserved")


class ChangesAfter:
    """A cancel event that writes to a tensor when it has been looked at often enough."""

    def __init__(self, array: np.ndarray, index: int, looks: int) -> None:
        self._array, self._index, self._looks = array, index, looks

    def is_set(self) -> bool:
        self._looks -= 1
        if self._looks == 0:
            self._array[self._index] ^= 1
        return False


@pytest.mark.parametrize("looks", [4, 6])  # in the middle, and when all is written
def test_a_tensor_that_changes_fails_the_capture(looks: int, tmp_path: pathlib.Path) -> None:
    changing = tensors()
    event: Any = ChangesAfter(changing["large"], 65536 + 17, looks)
    with pytest.raises(coldsnap.DataLossError, match=r"extent 0 \(large\).*changed while it was captured") as caught:
        coldsnap.capture(changing, tmp_path / "artifact", backend="python", cancel=event)
    assert "64 KiB at byte 65536 of 9437184" in str(caught.value)
    assert helpers.names_in(tmp_path) == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_a_cancelled_capture(backend: str, tmp_path: pathlib.Path) -> None:
    cancel = threading.Event()
    with pytest.raises(coldsnap.Cancelled) as caught:
        coldsnap.capture(
            tensors(), tmp_path / "artifact", backend=backend, cancel=cancel, progress=lambda *_: cancel.set()
        )
    assert caught.value.receipt is not None
    assert caught.value.receipt.error["code"] == "cancelled"
    assert helpers.names_in(tmp_path) == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_a_capture_into_a_store_that_is_cancelled_at_the_end(backend: str, tmp_path: pathlib.Path) -> None:
    class Last(threading.Event):
        def progress(self, done: int, total: int) -> None:
            if done == total:
                self.set()

    cancel = Last()
    with pytest.raises(coldsnap.Cancelled):
        coldsnap.capture(
            tensors(), store=tmp_path, identity={}, backend=backend, cancel=cancel, progress=cancel.progress
        )
    assert coldsnap.Store(tmp_path).ls() == []
    assert [name for name in helpers.names_in(tmp_path) if name.startswith(".incoming/")] == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_a_progress_function_that_raises(backend: str, tmp_path: pathlib.Path) -> None:
    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        coldsnap.capture(tensors(), tmp_path / "artifact", backend=backend, progress=progress)
    assert caught.value.receipt.error["code"] == "internal"  # type: ignore[attr-defined]
    assert helpers.names_in(tmp_path) == []


class PressesCtrlC:
    """A cancel event during whose third look a signal arrives, as a Ctrl-C does."""

    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        if self.looks == 3:
            signal.raise_signal(signal.SIGINT)
        return False


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_ctrl_c(backend: str, tmp_path: pathlib.Path) -> None:
    event: Any = PressesCtrlC()
    with pytest.raises(KeyboardInterrupt) as caught:
        coldsnap.capture(tensors(), tmp_path / "artifact", backend=backend, cancel=event)
    assert event.looks >= 3
    assert caught.value.receipt.error["code"] == "cancelled"  # type: ignore[attr-defined]
    assert helpers.names_in(tmp_path) == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_two_captures_to_one_place_at_a_time(backend: str, tmp_path: pathlib.Path) -> None:
    caught: list[coldsnap.PolicyRefusedError] = []

    def progress(done: int, total: int) -> None:
        if not caught:
            with pytest.raises(coldsnap.PolicyRefusedError, match="another capture is building") as refused:
                coldsnap.capture(helpers.model(), tmp_path / "artifact", backend=backend)
            caught.append(refused.value)

    receipt = coldsnap.capture(tensors(), tmp_path / "artifact", backend=backend, progress=progress)
    assert len(caught) == 1
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact.artifact_root == receipt.artifact_root
