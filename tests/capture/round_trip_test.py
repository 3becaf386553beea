"""Whatever is captured, by whichever backend: the same files, and after a restore the same bits."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import tempfile

import hypothesis
import numpy as np
import pytest
import safetensors

import coldsnap
from tests.capture import helpers


@helpers.SLOW_IS_FINE
@hypothesis.given(helpers.layouts())
def test_every_backend_writes_the_same_bytes_and_they_come_back(tensors: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        receipts = {
            backend: coldsnap.capture(tensors, folder / backend, backend=backend, identity={"n": len(tensors)})
            for backend in helpers.BACKENDS
        }
        assert len({receipt.artifact_root for receipt in receipts.values()}) == 1
        expected = helpers.files_of(folder / "python")
        for backend, other in zip(helpers.BACKENDS, (*helpers.BACKENDS[1:], "python"), strict=True):
            assert helpers.files_of(folder / backend) == expected, backend
            with coldsnap.open(folder / backend) as artifact:
                assert artifact.artifact_root == receipts[backend].artifact_root
                found = helpers.destinations(artifact)
                coldsnap.hydrate(artifact, found, backend=other)
            helpers.assert_same_bits(found, tensors)


def test_extents_of_several_chunks(tmp_path: pathlib.Path) -> None:
    tensors = {"long": helpers.random_bytes((9 << 20) + 17, 1), "longer": helpers.random_bytes((12 << 20), 2)}
    for backend in helpers.BACKENDS:
        coldsnap.capture(tensors, tmp_path / backend, backend=backend)
        assert helpers.files_of(tmp_path / backend) == helpers.files_of(tmp_path / "python"), backend
    assert coldsnap.verify(tmp_path / "python").ok


def test_artifact_json_differs_in_the_account_alone(tmp_path: pathlib.Path) -> None:
    texts = []
    for backend in ("python", "buffered"):
        coldsnap.capture(helpers.model(), tmp_path / backend, backend=backend, identity={"model": "m"})
        found = json.loads((tmp_path / backend / "artifact.json").read_bytes())
        account = found.pop("capture")
        assert account["backend"] == backend
        assert account["version"] == coldsnap.__version__
        assert int(account["time_ns"]) > 0
        texts.append(found)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_it_is_a_safetensors_file(backend: str, tmp_path: pathlib.Path) -> None:
    tensors = helpers.model()
    coldsnap.capture(tensors, tmp_path / "artifact", backend=backend)
    blob = tmp_path / "artifact" / "shard-00-00-00" / "weights.safetensors"
    with safetensors.safe_open(blob, framework="numpy") as file:
        names = [name for name in file.keys() if not name.startswith("__")]  # noqa: SIM118  # no mapping
        assert names == ["bias", "scale", "table"]  # `turned` is another view of the table
        for name in names:
            assert file.get_tensor(name).tobytes() == tensors[name].tobytes()


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_what_the_receipt_says(backend: str, tmp_path: pathlib.Path) -> None:
    tensors = helpers.model()
    steps: list[tuple[int, int]] = []
    receipt = coldsnap.capture(
        tensors, tmp_path / "artifact", backend=backend, progress=lambda done, total: steps.append((done, total))
    )
    payload = tensors["table"].nbytes + tensors["bias"].nbytes + tensors["scale"].nbytes
    assert (receipt.ok, receipt.operation, receipt.error) == (True, "capture", None)
    assert receipt.provider == ("python" if backend == "python" else "native")
    assert receipt.payload_bytes == payload
    assert [(route["bytes"], route["extents"]) for route in receipt.routes] == [(payload, 3)]
    assert receipt.routes[0]["route"] == backend or backend == "auto"
    assert receipt.settings["backend"] == {"value": backend, "source": "explicit"}
    assert receipt.verify == {"mode": "crc32+sha256", "place": "host"}
    assert receipt.stages_s["digest"] > 0
    assert receipt.stages_s["publish"] > 0
    assert helpers.codes(receipt)[0] == "explicit"
    assert steps[-1] == (2 * payload, 2 * payload)  # once copied, once to see that nothing changed
    assert [step[0] for step in steps] == sorted(step[0] for step in steps)


def test_the_library_s_backend_is_python_unless_somebody_chose(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = coldsnap.capture(helpers.model(), tmp_path / "default")
    assert receipt.settings["backend"] == {"value": "python", "source": "default"}
    assert helpers.codes(receipt) == ["provider_default"]
    monkeypatch.setenv("COLDSNAP_CAPTURE_BACKEND", "buffered")
    receipt = coldsnap.capture(helpers.model(), tmp_path / "environment")
    assert receipt.settings["backend"] == {"value": "buffered", "source": "environment"}
    assert receipt.provider == "native"


def test_a_misspelt_variable_is_warned_of(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_CAPTURE_BACKENT", "direct")
    with pytest.warns(
        UserWarning, match="COLDSNAP_CAPTURE_BACKENT is no setting.*the nearest is COLDSNAP_CAPTURE_BACKEND"
    ):
        coldsnap.capture(helpers.model(), tmp_path / "artifact")


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_files_are_read_only_and_folders_are_open_to_all(backend: str, tmp_path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        coldsnap.capture(helpers.model(), tmp_path / "artifact", backend=backend)
    finally:
        os.umask(before)
    for path in [tmp_path / "artifact", *(tmp_path / "artifact").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o444), path.name
    assert helpers.names_in(tmp_path) == [
        "artifact",
        "artifact/artifact.json",
        "artifact/shard-00-00-00",
        *(f"artifact/shard-00-00-00/{name}" for name in ("leaves.bin", "manifest.json", "weights.safetensors")),
    ]


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_bytes_that_no_tensor_covers_are_captured_and_counted(backend: str, tmp_path: pathlib.Path) -> None:
    owner = helpers.random_bytes(5000)
    receipt = coldsnap.capture({"w": owner[1000:1100]}, tmp_path / "artifact", backend=backend)
    assert receipt.payload_bytes == 5000
    [detail] = [reason["detail"] for reason in receipt.reasons if reason["code"] == "uncovered_bytes"]
    assert detail.startswith("4900 bytes")


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_nothing_to_capture_is_an_artifact_too(backend: str, tmp_path: pathlib.Path) -> None:
    receipt = coldsnap.capture({"none": np.zeros((0, 4), np.float32)}, tmp_path / "artifact", backend=backend)
    assert (receipt.payload_bytes, receipt.routes, receipt.bytes_per_second) == (0, [], None)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact["none"].shape == (0, 4)
    assert coldsnap.capture({}, tmp_path / "empty", backend=backend).ok


def test_identity_and_scalars_as_the_format_has_them(tmp_path: pathlib.Path) -> None:
    identity = {"model": "é", "ranks": (1, 2), "nested": {"none": None, "yes": True}}
    scalars = {"scale": 1.0, "nan": float("nan"), "minus": -3, "large": 1 << 60, "text": "f64:x"}
    coldsnap.capture(helpers.model(), tmp_path / "artifact", identity=identity, scalars=scalars)
    with coldsnap.open(tmp_path / "artifact") as artifact:
        assert artifact.identity == {**identity, "ranks": [1, 2]}
        assert artifact.scalars == {
            **{"scale": "f64:3ff0000000000000", "nan": "f64:7ff8000000000000", "minus": "-3"},
            **{"large": "1152921504606846976", "text": "f64:x"},
        }
