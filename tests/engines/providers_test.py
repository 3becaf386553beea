"""Either provider restores what the other one captured: one artifact, to its root, and the same tokens."""

from __future__ import annotations

import pathlib

from tests.engines import models
from tests.engines.cases import artifacts, by_coldsnap, require
from tests.engines.harness import Answer, Place, Start

_CAPTURE = {"COLDSNAP_CAPTURE_BACKEND": "python"}
_RESTORE = {"COLDSNAP_HYDRATION_BACKEND": "python"}


def _settled(answer: Answer) -> list[tuple[str, str, str]]:
    """Who moved the bytes, by which backend, and who chose it."""
    return [
        (receipt["provider"], receipt["settings"]["backend"]["value"], receipt["settings"]["backend"]["source"])
        for receipt in answer.receipts
    ]


def test_each_provider_restores_what_the_other_captured(tmp_path: pathlib.Path) -> None:
    start = Start(models.make("moe", tmp_path / "model"))
    natively, in_python = tmp_path / "natively", tmp_path / "in-python"
    place = Place(tmp_path)
    normal, native, python = place.start(start, by_coldsnap(start, natively), by_coldsnap(start, in_python, **_CAPTURE))
    require(native, normal, "captured")
    require(python, normal, "captured")
    assert _settled(native) == [("native", "auto", "adapter-default")]
    assert _settled(python) == [("python", "python", "environment")]
    names = [[artifact.name for artifact in artifacts(store)] for store in (natively, in_python)]
    assert names[0] == names[1]
    assert {receipt["artifact_root"] for answer in (native, python) for receipt in answer.receipts} == {names[0][0]}

    native, python = place.start(
        by_coldsnap(start, in_python, mode="restore"), by_coldsnap(start, natively, mode="restore", **_RESTORE)
    )
    require(native, normal, "restored")
    require(python, normal, "restored")
    assert _settled(native) == [("native", "auto", "adapter-default")]
    assert _settled(python) == [("python", "python", "environment")]
