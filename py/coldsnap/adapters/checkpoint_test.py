"""Which checkpoint: by content, read once, remembered under what a changed file can't keep."""

import hashlib
import os
import pathlib

import pytest

from coldsnap import errors
from coldsnap.adapters import checkpoint

LONG_AGO = 1_600_000_000


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "model"
    made.mkdir()
    for name, text in (("a.safetensors", "weights a"), ("b.safetensors", "weights b"), ("config.json", "{}")):
        (made / name).write_text(text)
    (made / "tokenizer.json").write_text("{}")
    (made / "README.md").write_text("about it")
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read for a digest. All times count as settled: a test can't set a file's ctime."""
    names: list[str] = []
    digest = checkpoint._digest

    def noted(path: pathlib.Path, facts: checkpoint._Facts) -> str:
        names.append(path.name)
        return digest(path, facts)

    monkeypatch.setattr(checkpoint, "_digest", noted)
    monkeypatch.setattr(checkpoint, "_SETTLED_S", -1.0)
    return names


def test_weights_and_their_description_count_and_nothing_else(folder: pathlib.Path, environ: dict[str, str]) -> None:
    found = checkpoint.of_folder(folder, environ)
    assert sorted(found["sha256"]) == ["a.safetensors", "b.safetensors", "config.json"]
    assert found["sha256"]["a.safetensors"] == hashlib.sha256(b"weights a").hexdigest()
    (folder / "README.md").write_text("more about it")
    assert checkpoint.of_folder(folder, environ) == found
    (folder / "config.json").write_text('{"edited": true}')
    assert checkpoint.of_folder(folder, environ) != found


def test_what_is_remembered_is_not_read_again(folder: pathlib.Path, environ: dict[str, str], read: list[str]) -> None:
    first = checkpoint.of_folder(folder, environ)
    assert sorted(read) == ["a.safetensors", "b.safetensors", "config.json"]
    read.clear()
    assert checkpoint.of_folder(folder, environ) == first
    assert read == []


def test_other_weights_of_the_same_size_and_time_are_read_again(
    folder: pathlib.Path, environ: dict[str, str], read: list[str]
) -> None:
    path = folder / "a.safetensors"
    os.utime(path, (LONG_AGO, LONG_AGO))
    first = checkpoint.of_folder(folder, environ)
    read.clear()
    path.write_text("weights X")
    os.utime(path, (LONG_AGO, LONG_AGO))  # but the ctime can't be set back
    second = checkpoint.of_folder(folder, environ)
    assert read == ["a.safetensors"]
    assert second["sha256"]["a.safetensors"] == hashlib.sha256(b"weights X").hexdigest()
    assert second["sha256"]["b.safetensors"] == first["sha256"]["b.safetensors"]


def test_a_young_file_is_not_remembered(folder: pathlib.Path, environ: dict[str, str]) -> None:
    checkpoint.of_folder(folder, environ)
    assert checkpoint._read(environ) == {}  # it may change again within the same tick of the clock


def test_a_damaged_record_is_none(folder: pathlib.Path, environ: dict[str, str], read: list[str]) -> None:
    first = checkpoint.of_folder(folder, environ)
    (record,) = pathlib.Path(environ["COLDSNAP_STATE_DIR"]).rglob("digests.json")
    assert first["sha256"]["a.safetensors"] in record.read_text()
    record.write_text(record.read_text()[:-20])
    read.clear()
    assert checkpoint.of_folder(folder, environ) == first
    assert len(read) == 3


def test_nowhere_to_remember_is_no_failure(folder: pathlib.Path, read: list[str]) -> None:
    environ = {"COLDSNAP_STATE_DIR": "/proc/nothing/can/be/made/here"}
    assert checkpoint.of_folder(folder, environ) == checkpoint.of_folder(folder, environ)
    assert len(read) == 6


def test_a_snapshot_of_the_hub_is_known_by_its_commit(tmp_path: pathlib.Path, environ: dict[str, str]) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "hub" / "models--Qwen--Qwen3-0.6B" / "snapshots" / commit
    assert checkpoint.of_folder(folder, environ) == {"repository": "Qwen/Qwen3-0.6B", "commit": commit}


def test_a_folder_without_weights_is_refused(tmp_path: pathlib.Path, environ: dict[str, str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(errors.RequestInvalidError, match="no file of weights") as caught:
        checkpoint.of_folder(tmp_path, environ)
    assert "identity to manifest" in str(caught.value)


def test_a_file_that_changes_meanwhile_is_refused(
    folder: pathlib.Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts_of = checkpoint._facts_of

    def touched(path: pathlib.Path) -> checkpoint._Facts:
        found = facts_of(path)
        path.write_text("something else, longer")
        return found

    monkeypatch.setattr(checkpoint, "_facts_of", touched)
    with pytest.raises(errors.IoError, match="changed meanwhile"):
        checkpoint.of_folder(folder, environ)
