"""Attempts: remembered by identity and version; what is damaged is not."""

import pathlib

import pytest

from coldsnap.adapters import attempts

ONE, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


def test_by_identity_and_version(environ: dict[str, str]) -> None:
    assert not attempts.failed(ONE, "0.1.0", environ)
    attempts.note(ONE, "w: \0a handle", "0.1.0", environ)
    assert attempts.failed(ONE, "0.1.0", environ)
    assert not attempts.failed(OTHER, "0.1.0", environ)
    assert not attempts.failed(ONE, "0.2.0", environ)  # which may see more


def test_a_damaged_one_is_not_remembered(environ: dict[str, str]) -> None:
    attempts.note(ONE, "why", "0.1.0", environ)
    (path,) = pathlib.Path(environ["COLDSNAP_STATE_DIR"]).rglob(f"{ONE}.json")
    path.write_text("{}")
    assert not attempts.failed(ONE, "0.1.0", environ)
    path.chmod(0o666)
    assert not attempts.failed(ONE, "0.1.0", environ)
