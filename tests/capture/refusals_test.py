"""What a capture refuses before the first byte, and what it says."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import coldsnap
from tests.capture import helpers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither of path and store"),
        ({"path": "a", "store": "s"}, "both of path and store"),
        ({"store": "s"}, "there is no identity"),
        ({"path": "a", "replace": True}, "replace was given with a path"),
        ({"path": "a", "replace": 1}, "replace is a int"),
        ({"path": "a", "preverified": "yes"}, "preverified is a str"),
        ({"path": 7}, "the path is 7"),
        ({"path": ""}, "the path is ''"),
        ({"path": "missing/parent"}, "there is no folder"),
        ({"store": 7, "identity": {}}, "7 is no path"),
        ({"path": "a", "backend": "gds"}, "'gds' is unknown; the known ones: python, auto, buffered, direct"),
        ({"path": "a", "place": "gpu"}, "'gpu' is unknown; the known ones: auto, host, device, both"),
        ({"path": "a", "identity": [1]}, "read identity: it is a list"),
        ({"path": "a", "identity": {"a": {"b": b"c"}}}, r"read identity.a.b: a bytes has no place in JSON"),
        ({"path": "a", "scalars": {1: 2}}, "the key 1 is a int"),
        ({"path": "a", "scalars": {"a": "\ud800"}}, "no UTF-8"),
        ({"path": "a", "progress": 1}, "progress is a int"),
        ({"path": "a", "cancel": 1}, "cancel is a int"),
    ],
)
def test_arguments(
    arguments: dict[str, Any], message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(coldsnap.RequestInvalidError, match=message) as caught:
        coldsnap.capture(helpers.model(), **arguments)
    assert caught.value.receipt is not None
    assert caught.value.receipt.operation == "capture"
    assert caught.value.receipt.error["code"] == "request_invalid"
    assert helpers.names_in(tmp_path) == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([1], "they are a list"),
        ({"w": [1, 2]}, "'w': it is a builtins.list"),
        ({"w": np.zeros(4)[::-1]}, "negative"),
        ({"": np.zeros(4)}, "name"),
        ({"a\0b": np.zeros(4)}, "NUL"),
        ({"\ud800": np.zeros(4)}, "no UTF-8"),
        ({"w": np.zeros(2, object)}, "no name in safetensors"),
    ],
)
def test_tensors(tensors: Any, message: str, backend: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=message):
        coldsnap.capture(tensors, tmp_path / "artifact", backend=backend)
    assert helpers.names_in(tmp_path) == []


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_an_existing_place_is_refused_and_stays_as_it_was(backend: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    before = helpers.names_in(tmp_path)
    for name in ("file", "folder", "link"):
        with pytest.raises(coldsnap.ExistsError, match="it is there already") as caught:
            coldsnap.capture(helpers.model(), tmp_path / name, backend=backend)
        assert caught.value.exit_code == 3
    assert helpers.names_in(tmp_path) == before
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_an_artifact_is_never_replaced(tmp_path: pathlib.Path) -> None:
    coldsnap.capture(helpers.model(), tmp_path / "artifact")
    before = helpers.files_of(tmp_path)
    with pytest.raises(coldsnap.ExistsError):
        coldsnap.capture({"other": np.ones(9)}, tmp_path / "artifact")
    assert helpers.files_of(tmp_path) == before


@pytest.mark.parametrize("place", ["device", "both"])
def test_the_provider_python_has_no_kernel(place: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for in the environment, too: no other place is taken in its stead."""
    monkeypatch.setenv("COLDSNAP_VERIFY_PLACE", place)
    with pytest.raises(coldsnap.RouteUnavailableError) as found:
        coldsnap.capture({"w": np.zeros(9)}, tmp_path / "a", backend="python")
    assert f"place {place}" in found.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["host", "device", "both"])
def test_the_place_that_was_asked_for_is_the_one(place: str, tmp_path: pathlib.Path) -> None:
    receipt = coldsnap.capture({"w": np.zeros(9)}, tmp_path / "a", backend="auto", place=place)
    assert receipt.settings["place"] == {"value": place, "source": "explicit"}
    assert receipt.verify["place"] == place
