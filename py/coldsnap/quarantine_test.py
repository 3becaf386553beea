"""Quarantine: records are written, found, listed and removed; a doubtful one counts."""

import os
import pathlib

import pytest

from coldsnap import errors, quarantine, state

ROOT, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


def folder(environ: dict[str, str]) -> pathlib.Path:
    return state.path_of(state.QUARANTINE, environ)


def test_a_record_lives_until_it_is_removed(environ: dict[str, str]) -> None:
    assert quarantine.find(ROOT, environ) is None
    assert quarantine.every(environ) == []
    assert not quarantine.remove(ROOT, environ)
    assert not folder(environ).exists()  # looking makes nothing
    quarantine.write(OTHER, errors.FormatInvalidError("odd\nlines, \0 and ü"), "hydrate", environ)
    quarantine.write(ROOT, errors.DataLossError("extent 0 (w): piece 0", remedy="not part of it"), "verify", environ)
    found = quarantine.find(ROOT, environ)
    assert found is not None
    assert found[:4] == (ROOT, "data_loss", "extent 0 (w): piece 0", "verify")
    assert [record.artifact_root for record in quarantine.every(environ)] == [ROOT, OTHER]
    assert quarantine.every(environ)[1].message == "odd\nlines,  and ü"
    assert quarantine.remove(ROOT, environ)
    assert quarantine.find(ROOT, environ) is None
    assert quarantine.find(OTHER, environ) is not None


def test_the_newest_failure_stands(environ: dict[str, str]) -> None:
    quarantine.write(ROOT, errors.DataLossError("first"), "verify", environ)
    quarantine.write(ROOT, errors.DataLossError("x" * 100_000), "verify", environ)
    [found] = quarantine.every(environ)
    assert found.message == "x" * 4000


@pytest.mark.parametrize("text", ["", "{", '{"format": 2}', f'{{"format": 1, "artifact_root": "{OTHER}"}}'])
def test_a_damaged_record_is_one(text: str, environ: dict[str, str]) -> None:
    quarantine.write(ROOT, errors.DataLossError("x"), "verify", environ)
    (folder(environ) / f"{ROOT}.json").write_text(text)
    found = quarantine.find(ROOT, environ)
    assert found is not None
    assert found.code == "unknown"
    assert "is damaged" in found.message
    assert quarantine.every(environ) == [found]
    assert quarantine.remove(ROOT, environ)


def test_a_record_under_another_name_does_not_pass_for_one(environ: dict[str, str]) -> None:
    quarantine.write(ROOT, errors.DataLossError("x"), "verify", environ)
    (folder(environ) / f"{ROOT}.json").rename(folder(environ) / f"{OTHER}.json")
    found = quarantine.find(OTHER, environ)
    assert found is not None
    assert f"$.artifact_root is {ROOT}" in found.message


def test_what_others_may_write_is_refused(environ: dict[str, str]) -> None:
    quarantine.write(ROOT, errors.DataLossError("x"), "verify", environ)
    folder(environ).chmod(0o777)
    for call in (lambda: quarantine.find(ROOT, environ), lambda: quarantine.every(environ)):
        with pytest.raises(errors.PolicyRefusedError):
            call()
    folder(environ).chmod(0o700)
    (folder(environ) / f"{ROOT}.json").chmod(0o666)
    with pytest.raises(errors.PolicyRefusedError, match="chmod go-w"):
        quarantine.find(ROOT, environ)


def test_a_note_never_hides_the_failure(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    failure = errors.DataLossError("x")
    assert quarantine.note(None, failure, "verify") == []
    assert quarantine.note(ROOT, failure, "verify") == [{"code": "quarantined", "detail": ROOT}]
    assert quarantine.find(ROOT, os.environ) is not None
    monkeypatch.setenv("COLDSNAP_STATE_DIR", "relative")
    [reason] = quarantine.note(ROOT, failure, "verify")
    assert reason["code"] == "quarantine_failed"
    assert "'relative' is relative" in reason["detail"]
