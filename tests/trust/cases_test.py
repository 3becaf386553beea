"""Every case of docs/trust.md, from capture to restore: admitted, or refused by name, and never a wrong byte with digests."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

import coldsnap
from tests.trust import file_cases, marker_cases, mount_cases
from tests.trust.cases import CASES, POISONED, RESTORED, Case
from tests.trust.place import GROUP, Place

NATIVE = ("auto", "buffered", "direct")
# Each module adds its cases when it is imported.
MODULES = (file_cases, marker_cases, mount_cases)


@pytest.fixture
def at(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with contextlib.ExitStack() as unwind:
        yield Place(tmp_path, monkeypatch, unwind)


def name_of(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_case(case: Case, at: Place) -> None:
    path = case.call(at)
    message = ""
    for backend in NATIVE if case.names else NATIVE[:2]:
        found = at.restore(path, backend, "none")
        assert found.code == case.code, found.message
        for name in case.names:
            assert name in found.message
        assert found.bytes == ("untouched" if case.names else "wrong" if case.wrong else "restored")
        message = found.message
    if case.code == "not_admitted":
        can_follow = at.follow(message) == 0
        assert can_follow == (case.digests == RESTORED)
        if can_follow:
            assert at.restore(path, "buffered", "none") == ("restored", "", "")
    for backend in ("python", "buffered"):
        found = at.restore(path, backend, "crc32+sha256")
        assert found.bytes == case.digests, found.message
        assert found.code == {RESTORED: "", POISONED: "data_loss"}.get(case.digests, case.code)


def test_what_others_may_write_is_not_admitted(at: Place) -> None:
    """Nor is a marker written for it: the modes of an fsGroup, without the variable that names the group."""
    artifact = file_cases.of_a_pod(at)
    at.setenv("COLDSNAP_TRUST_GROUP", None)
    with pytest.raises(
        coldsnap.NotAdmittedError, match=f"group {GROUP} may write .* COLDSNAP_TRUST_GROUP={GROUP}, then"
    ):
        coldsnap.verify(artifact, admit=True)
    assert not at.trust.exists()
    assert at.restore(artifact, "auto", "none").bytes == "untouched"
    at.setenv("COLDSNAP_TRUST_GROUP", str(GROUP))
    at.admitted(artifact)
