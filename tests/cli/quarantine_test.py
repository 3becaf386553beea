"""Whoever finds bad data writes it down: by verify and by hydrate, by every backend, also where opening fails."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

import coldsnap
from coldsnap import quarantine

WEIGHTS = {"w": np.arange(70_000, dtype=np.uint8), "v": np.ones(9)}


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    coldsnap.capture(WEIGHTS, tmp_path / "artifact")
    return tmp_path / "artifact"


def blob(path: pathlib.Path) -> pathlib.Path:
    found = path / "shard-00-00-00" / "weights.safetensors"
    found.chmod(0o644)
    return found


def root_of(path: pathlib.Path) -> str:
    with coldsnap.open(path) as artifact:
        return artifact.artifact_root


def hydrate(path: pathlib.Path, backend: str) -> coldsnap.Receipt:
    return coldsnap.hydrate(path, {name: np.empty_like(each) for name, each in WEIGHTS.items()}, backend=backend)


@pytest.mark.parametrize("backend", ["python", "buffered"])
def test_a_restore_that_finds_a_wrong_byte_writes_it_down(backend: str, path: pathlib.Path) -> None:
    root = root_of(path)
    assert hydrate(path, backend).ok
    assert quarantine.every(os.environ) == []
    with blob(path).open("r+b") as file:
        file.seek(65536 + 7)
        file.write(b"x")
    with pytest.raises(coldsnap.DataLossError) as caught:
        hydrate(path, backend)
    [record] = quarantine.every(os.environ)
    assert (record.artifact_root, record.code, record.operation) == (root, "data_loss", "hydrate")
    assert record.message == caught.value.message
    assert caught.value.receipt is not None
    assert {"code": "quarantined", "detail": root} in caught.value.receipt.reasons


@pytest.mark.parametrize("operation", ["verify", "hydrate"])
def test_so_does_one_that_cannot_be_opened_any_more(operation: str, path: pathlib.Path) -> None:
    root = root_of(path)
    os.truncate(blob(path), 65536)
    with pytest.raises(coldsnap.DataLossError) as caught:
        coldsnap.verify(path) if operation == "verify" else hydrate(path, "buffered")
    [record] = quarantine.every(os.environ)
    assert (record.artifact_root, record.code, record.operation) == (root, "data_loss", operation)
    assert caught.value.receipt is not None
    assert caught.value.receipt.reasons == [{"code": "quarantined", "detail": root}]


def test_what_is_no_failure_of_data_is_not_written_down(path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.LayoutError):
        coldsnap.hydrate(path, {"w": np.empty(3)})
    with pytest.raises(coldsnap.Error):
        coldsnap.verify(path / "nowhere")
    (path / "artifact.json").chmod(0o644)
    (path / "artifact.json").write_text("[]")
    with pytest.raises(coldsnap.FormatInvalidError):
        coldsnap.verify(path)
    assert quarantine.every(os.environ) == []


def test_a_state_folder_that_cannot_be_written_changes_no_error(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(blob(path), 65536)
    monkeypatch.setenv("COLDSNAP_STATE_DIR", "relative")
    with pytest.raises(coldsnap.DataLossError) as caught:
        coldsnap.verify(path)
    assert caught.value.receipt is not None
    assert [reason["code"] for reason in caught.value.receipt.reasons] == ["quarantine_failed"]
