"""The progress of a capture from files: reading them moves it too, and it never goes back."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import save_file

import coldsnap
from coldsnap import operations, request_schema, tensor_files, ticker

PIECE = 64 << 10


@pytest.mark.parametrize("backend", ["python", "buffered"])
@pytest.mark.parametrize("preverified", [False, True])
@pytest.mark.parametrize("kind", ["safetensors", "numpy"])
def test_a_capture_from_files(
    backend: str, preverified: bool, kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(ticker, "_TICK_S", 0.0)
    monkeypatch.setattr(tensor_files, "_READ_BYTES", PIECE)
    tensor = np.arange(160 * PIECE, dtype=np.uint8)  # several chunks of each backend
    save_file({"w": tensor}, str(tmp_path / "w.safetensors"))
    np.save(tmp_path / "w.npy", tensor)
    names = {"safetensors": [str(tmp_path / "w.safetensors")], "numpy": str(tmp_path / "w.npy")}
    file_bytes = (tmp_path / ("w.npy" if kind == "numpy" else "w.safetensors")).stat().st_size
    document = {
        "format": 1, "operation": "capture", "source": {kind: names[kind]}, "path": str(tmp_path / "artifact"),
        "backend": backend, "preverified": preverified,
    }  # fmt: skip
    steps: list[tuple[int, int]] = []
    request = request_schema.parse(json.dumps(document).encode())
    try:
        operations.run(request, lambda done, total: steps.append((done, total)))
    except coldsnap.RouteUnavailableError as refusal:
        pytest.skip(f"reading past the page cache: {refusal}")
    done = [step[0] for step in steps]
    assert done == sorted(done)
    passes = 3 if preverified else 2
    total = file_bytes + passes * tensor.nbytes
    assert steps[-1] == (total, total)
    assert len([each for each in done if each < file_bytes]) >= 5
    if backend == "python":  # the native core's own clock decides when it tells
        for before in (file_bytes, file_bytes + tensor.nbytes):
            assert [each for each in done if before < each < before + tensor.nbytes]
    # Before the header is read nobody knows the payload; a bar of whole per cents shows no difference.
    assert all(abs(all_of_it - total) < total / 100 for _, all_of_it in steps)
