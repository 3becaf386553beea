"""Restores into tensors of other frameworks: seen as they are, and written only where their owner lets them be."""

from __future__ import annotations

import pathlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coldsnap

BACKENDS = ("python", "buffered")


class Foreign:
    """Somebody else's tensor, which says where it is by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **more: Any) -> Any:
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.fixture
def artifact(tmp_path: pathlib.Path) -> pathlib.Path:
    coldsnap.capture({"w": np.arange(100_000, dtype=np.float32)}, tmp_path / "artifact")
    return tmp_path / "artifact"


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_speaks_dlpack_is_filled(backend: str, artifact: pathlib.Path) -> None:
    memory = np.zeros(100_000, np.float32)
    coldsnap.hydrate(artifact, {"w": Foreign(memory)}, backend=backend)
    assert (memory == np.arange(100_000)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_must_not_be_written_is_refused(backend: str, artifact: pathlib.Path) -> None:
    memory = np.zeros(100_000, np.float32)
    memory.flags.writeable = False
    with pytest.raises(coldsnap.RequestInvalidError, match="'w'"):
        coldsnap.hydrate(artifact, {"w": Foreign(memory)}, backend=backend)
    assert not memory.any()


def test_another_framework_of_the_gpu_that_must_not_be_written(
    artifact: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=np.ndarray))  # asked for nothing else
    there = SimpleNamespace(__cuda_array_interface__={"data": (4096, True), "shape": (100_000,), "typestr": "<f4"})
    with pytest.raises(coldsnap.RequestInvalidError, match=r"'w'.*its owner doesn't let it be written"):
        coldsnap.hydrate(artifact, {"w": there})


def test_what_speaks_neither_is_refused(artifact: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=r"'w': it is a builtins\.bytearray"):
        coldsnap.hydrate(artifact, {"w": bytearray(400_000)})
