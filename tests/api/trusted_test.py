"""Restores that compare no digest, because a full verification of this very file is on record."""

import os
import pathlib
from typing import Any

import pytest

import coldsnap
from coldsnap import trust
from tests.api import helpers
from tests.api.helpers import POISON, UNTOUCHED

NATIVE = ("auto", "buffered", "direct")


@pytest.fixture(autouse=True)
def trust_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "trust"
    monkeypatch.setenv("COLDSNAP_TRUST_DIR", str(folder))
    return folder


@pytest.fixture
def admitted(tmp_path: pathlib.Path) -> pathlib.Path:
    artifact = helpers.write(tmp_path / "artifact", helpers.mixed_tensors())
    coldsnap.verify(artifact, admit=True)
    return artifact


def restore(artifact: pathlib.Path, **arguments: Any) -> coldsnap.Receipt:
    tensors = helpers.mixed_tensors()
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, **arguments)
    helpers.assert_same_bytes(destinations, tensors)
    return receipt


@pytest.mark.parametrize("backend", NATIVE)
def test_an_admitted_artifact_needs_no_digests(admitted: pathlib.Path, backend: str, tmp_path: pathlib.Path) -> None:
    helpers.needs(backend, tmp_path)
    receipt = restore(admitted, backend=backend, verify="none")
    assert receipt.verify["mode"] == "none"
    assert receipt.settings["verify"] == {"value": "none", "source": "explicit"}
    assert "preverified" in helpers.codes(receipt)
    assert receipt.stages_s["digest"] < 0.01  # nothing was hashed: a clock was read, once for each block


def test_the_environment_asks_for_it(admitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_HIBERNATE_VERIFY_MODE", "preverified")
    receipt = restore(admitted, backend="auto")
    assert receipt.settings["verify"] == {"value": "none", "source": "environment"}
    # Whoever names digests gets them.
    assert restore(admitted, backend="auto", verify="crc32").verify["mode"] == "crc32"


def test_the_provider_python_compares_all_the_same(admitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_HIBERNATE_VERIFY_MODE", "preverified")
    receipt = restore(admitted, backend="python")
    assert receipt.verify["mode"] == "crc32+sha256"
    assert "setting_unused" in helpers.codes(receipt)


def test_a_touched_file_is_another_file(admitted: pathlib.Path) -> None:
    os.utime(helpers.file_of(admitted, "weights.safetensors"))
    destinations = helpers.untouched_like(helpers.mixed_tensors())
    with pytest.raises(coldsnap.NotAdmittedError, match="mtime_ns"):
        coldsnap.hydrate(admitted, destinations, backend="auto", verify="none")
    assert helpers.every_byte_is(destinations, UNTOUCHED)


def test_a_file_that_changes_during_the_restore_is_not_published(admitted: pathlib.Path) -> None:
    blob = helpers.file_of(admitted, "weights.safetensors")
    tensors = helpers.mixed_tensors()
    destinations = helpers.untouched_like(tensors)

    def touch(done: int, total: int) -> None:
        os.utime(blob)

    with pytest.raises(coldsnap.NotAdmittedError, match="changed while it was read"):
        coldsnap.hydrate(admitted, destinations, backend="buffered", verify="none", progress=touch)
    assert helpers.every_byte_is(destinations, POISON)


def test_a_pin_admits_after_one_full_verification(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = helpers.write(tmp_path / "artifact", helpers.mixed_tensors())
    with coldsnap.open(artifact) as opened:
        monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", opened.native.manifest_sha256)
    monkeypatch.setenv("COLDSNAP_HIBERNATE_VERIFY_MODE", "preverified")
    assert restore(artifact, backend="auto").verify["mode"] == "none"
    monkeypatch.delenv("COLDSNAP_TRUST_MANIFEST")
    restore(artifact, backend="auto", verify="none")  # by the marker that the first one left


def test_a_pin_keeps_every_other_artifact_out(admitted: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", "0" * 64)
    for backend in ("python", "auto"):
        destinations = helpers.untouched_like(helpers.mixed_tensors())
        with pytest.raises(coldsnap.PolicyRefusedError, match="COLDSNAP_TRUST_MANIFEST"):
            coldsnap.hydrate(admitted, destinations, backend=backend)
        assert helpers.every_byte_is(destinations, UNTOUCHED)


@pytest.mark.parametrize("backend", ["python", "buffered"])
def test_a_file_that_lost_bytes_loses_its_marker(
    admitted: pathlib.Path, backend: str, trust_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coldsnap.open(admitted) as opened:
        facts = trust.facts_of(opened)
        place = opened.native.data_start
    helpers.flip_bit(helpers.file_of(admitted, "weights.safetensors"), place)
    monkeypatch.setattr(trust, "facts_of", lambda artifact: facts)  # the drive, not somebody, changed it
    assert list(trust_dir.glob("*.json"))
    with pytest.raises(coldsnap.DataLossError) as caught:
        restore(admitted, backend=backend)
    assert caught.value.receipt is not None
    assert "marker_removed" in helpers.codes(caught.value.receipt)
    assert not list(trust_dir.glob("*.json"))
