"""Another library in the place of the extension module: COLDSNAP_HYDRATION_NATIVE_LIBRARY, and what is refused."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, hydration_abi, native_library, settings
from tests.api import helpers

TOP = pathlib.Path(os.environ["RUNFILES_ROOT"])
LIBRARY, VERSION_2, INCOMPLETE = (TOP / os.environ[name] for name in ("LIBRARY", "VERSION_2", "INCOMPLETE"))
SHA256 = hashlib.sha256(LIBRARY.read_bytes()).hexdigest()
NUMBERS = settings.native_settings(settings.fit_ring(settings.resolve({}, {}), _native.limits())[0], _native.limits())


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    return helpers.mixed_tensors()


@pytest.fixture
def artifact(tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]) -> pathlib.Path:
    return helpers.write(tmp_path / "artifact", tensors)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (settings.NATIVE_LIBRARY, settings.NATIVE_SHA256):
        monkeypatch.delenv(variable, raising=False)


def name_library(monkeypatch: pytest.MonkeyPatch, path: object, sha256: str | None = None) -> None:
    monkeypatch.setenv(settings.NATIVE_LIBRARY, str(path))
    if sha256 is not None:
        monkeypatch.setenv(settings.NATIVE_SHA256, sha256)


def test_it_restores_and_the_receipt_names_it_without_its_path(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_module = coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend="buffered")
    name_library(monkeypatch, LIBRARY, SHA256.upper())
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, backend="buffered")
    helpers.assert_same_bytes(destinations, tensors)
    assert receipt.versions.pop("native_library") == f"libcoldsnap_hydration.so sha256:{SHA256}"
    assert "native_library" not in by_module.versions
    assert str(LIBRARY.parent) not in receipt.to_json()
    assert helpers.comparable(receipt) == helpers.comparable(by_module)
    assert receipt.routes == by_module.routes
    assert receipt.settings == by_module.settings
    assert receipt.stages_s.keys() == by_module.stages_s.keys()
    assert receipt.stages_s["read"] > 0


def test_it_answers_in_the_words_of_the_module(artifact: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    opened = _native.open_artifact(str(artifact), None)
    destination = np.zeros(opened.payload_bytes, np.uint8)
    ends = np.cumsum([row[1] for row in opened.extents()])
    ranges = [
        (i, destination.ctypes.data + int(end) - row[1], row[1])
        for i, (row, end) in enumerate(zip(opened.extents(), ends, strict=True))
    ]
    found, filled = [], []
    for make in (_native.Hydrator, native_library.load(str(LIBRARY)).hydrator):
        hydrator = make("host")
        assert hydrator.prepare("buffered", NUMBERS) >= 0
        destination[:] = 0
        found.append(hydrator.hydrate(opened, ranges, "buffered", "crc32", NUMBERS, [], None))
        filled.append(destination.tobytes())
    assert filled[0] == filled[1] != bytes(len(filled[0]))
    assert _without_times(found[0]) == _without_times(found[1])


def _without_times(report: dict[str, Any]) -> dict[str, Any]:
    assert report["wall_s"] > 0
    return report | {"wall_s": 0, "stages_s": list(report["stages_s"])}


def test_damage_is_the_same_error_with_the_same_words(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    with coldsnap.open(artifact) as opened:
        offset = opened.extent(opened["table"].extent or 0).file_offset
    helpers.flip_bit(helpers.file_of(artifact, "weights.safetensors"), offset)
    caught = []
    for library in ("", LIBRARY):
        name_library(monkeypatch, library)
        destinations = helpers.untouched_like(tensors)
        with pytest.raises(coldsnap.DataLossError) as error:
            coldsnap.hydrate(artifact, destinations, backend="buffered", verify="crc32", **helpers.SMALL_RING)
        assert helpers.every_byte_is(destinations, helpers.POISON)
        caught.append(error.value)
    by_module, by_library = caught
    for part in ("message", "stage", "remedy", "native"):
        assert getattr(by_library, part) == getattr(by_module, part)
    assert by_library.receipt is not None
    assert by_library.receipt.versions["native_library"].endswith(SHA256)


def test_ctrl_c_while_the_library_runs_is_not_lost() -> None:
    # Its handler runs at the first instruction of the callback, and ctypes drops what leaves one.
    calls = hydration_abi._Calls()
    told: list[tuple[int, int]] = []
    callback = calls.callback(lambda done, total: told.append((done, total)))
    interrupted_call = ctypes.CDLL(str(VERSION_2)).fake_interrupted_call
    progress = hydration_abi.STRUCTS["progress"](done_bytes=3, total_bytes=7)
    assert interrupted_call(callback, ctypes.byref(progress)) == 1
    assert isinstance(calls.raised, KeyboardInterrupt)
    first = calls.raised
    assert interrupted_call(callback, ctypes.byref(progress)) == 1
    assert calls.raised is first
    assert callback(ctypes.byref(progress)) == 0
    assert told == [(3, 7)]


def test_another_artifact_at_the_path_is_refused(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    name_library(monkeypatch, LIBRARY)
    with coldsnap.open(artifact) as opened:
        artifact.rename(artifact.with_name("away"))
        helpers.write(artifact, helpers.untouched_like(tensors))  # the same layout, other bytes
        destinations = helpers.untouched_like(tensors)
        with pytest.raises(coldsnap.DataLossError, match=opened.artifact_root):
            coldsnap.hydrate(opened, destinations, backend="buffered")
    assert helpers.every_byte_is(destinations, helpers.UNTOUCHED)


def test_without_digests_the_library_must_read_the_file_that_was_admitted(artifact: pathlib.Path) -> None:
    opened = _native.open_artifact(str(artifact), None)
    hydrator = native_library.load(str(LIBRARY)).hydrator("host")
    hydrator.hydrate(opened, [], "buffered", "none", NUMBERS, [], None)
    shutil.copytree(artifact, artifact.with_name("copy"))
    artifact.rename(artifact.with_name("away"))
    artifact.with_name("copy").rename(artifact)
    another = native_library.load(str(LIBRARY)).hydrator("host")
    another.hydrate(opened, [], "buffered", "crc32", NUMBERS, [], None)
    with pytest.raises(coldsnap.NotAdmittedError, match="another file"):
        another.hydrate(opened, [], "buffered", "none", NUMBERS, [], None)


def test_confirm_has_the_last_word_and_what_the_abi_lacks_is_refused(artifact: pathlib.Path) -> None:
    opened = _native.open_artifact(str(artifact), None)
    hydrator = native_library.load(str(LIBRARY)).hydrator("host")

    def doubt() -> None:
        raise LookupError("of the caller's")

    hydrator.hydrate(opened, [], "buffered", "crc32", NUMBERS, [], None, lambda: True)
    with pytest.raises(LookupError, match="of the caller's"):
        hydrator.hydrate(opened, [], "buffered", "crc32", NUMBERS, [], None, doubt)
    with pytest.raises(coldsnap.RouteUnavailableError, match="version 1 has no traces"):
        hydrator.hydrate(opened, [], "buffered", "crc32", NUMBERS, [], None, trace=object())
    with pytest.raises(coldsnap.RequestInvalidError, match="differ in new_one"):
        hydrator.hydrate(opened, [], "buffered", "crc32", NUMBERS | {"new_one": 1}, [], None)


def refused(artifact: pathlib.Path, tensors: dict[str, np.ndarray], kind: type[coldsnap.Error]) -> coldsnap.Error:
    destinations = helpers.untouched_like(tensors)
    with pytest.raises(kind) as caught:
        coldsnap.hydrate(artifact, destinations, backend="auto")
    assert helpers.every_byte_is(destinations, helpers.UNTOUCHED)
    assert caught.value.remedy
    assert caught.value.receipt is not None
    assert "native_library" not in caught.value.receipt.versions
    return caught.value


def test_a_wrong_digest_runs_nothing_of_the_library(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    changed = tmp_path / "changed.so"
    changed.write_bytes(LIBRARY.read_bytes() + b"\0")
    name_library(monkeypatch, changed, SHA256)
    error = refused(artifact, tensors, coldsnap.PolicyRefusedError)
    for part in (SHA256, hashlib.sha256(changed.read_bytes()).hexdigest(), f"{changed.stat().st_size} bytes"):
        assert part in error.message
    assert "changed.so" not in pathlib.Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file or directory"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: os.mkfifo(path), "no regular file"),
        (lambda path: path.write_bytes(b""), "the loader says: lib.so: file too short"),
        (lambda path: path.write_text("text" * 100), "the loader says: lib.so: invalid ELF header"),
        (lambda path: path.write_bytes(LIBRARY.read_bytes()[:63]), "the loader says: lib.so: file too short"),
        (lambda path: path.write_bytes(LIBRARY.read_bytes()[:64]), "it has 64 bytes, and its segments end at "),
        (lambda path: path.write_bytes(LIBRARY.read_bytes()[:100_000]), "it has 100000 bytes, and its segments end"),
        (lambda path: shutil.copy(VERSION_2, path), "ABI is version 2, and this coldsnap calls version 1"),
        (lambda path: shutil.copy(INCOMPLETE, path), "it has 1 of 8 functions, not coldsnap_hydration_open, "),
    ],
    ids=["missing", "folder", "pipe", "empty", "text", "stub", "header", "cut", "version 2", "incomplete"],
)
def test_what_is_no_library_of_ours_is_refused(
    artifact: pathlib.Path,
    tensors: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    make: Any,
    words: str,
) -> None:
    make(tmp_path / "lib.so")
    name_library(monkeypatch, tmp_path / "lib.so")
    assert words in refused(artifact, tensors, coldsnap.RouteUnavailableError).message
    # And the right one after it, though it comes from memory in the same way.
    name_library(monkeypatch, LIBRARY, SHA256)
    coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend="auto")


def test_what_was_compared_is_what_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is another one by the time that the loader is called."""
    path = tmp_path / "lib.so"
    shutil.copy(LIBRARY, path)
    dlopen = native_library._dlopen

    def swap_first(given: str, content: bytes) -> Any:
        path.chmod(0o644)
        path.write_bytes(VERSION_2.read_bytes())
        return dlopen(given, content)

    monkeypatch.setattr(native_library, "_loaded", {})
    monkeypatch.setattr(native_library, "_dlopen", swap_first)
    assert native_library.load(str(path), SHA256).version.endswith(SHA256)


def test_nobody_can_write_to_what_was_loaded() -> None:
    fd = native_library._sealed("lib.so", b"content")
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"other", 0)
        with pytest.raises(PermissionError):
            os.truncate(fd, 0)
        assert os.pread(fd, 100, 0) == b"content"
    finally:
        os.close(fd)


def test_the_python_provider_says_that_it_calls_none(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    name_library(monkeypatch, "no/such/library")
    receipt = coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend="python")
    assert {
        "code": "setting_unused",
        "detail": "provider python calls no native library: " + settings.NATIVE_LIBRARY,
    } in receipt.reasons


def test_a_digest_alone_is_refused(
    artifact: pathlib.Path, tensors: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.NATIVE_SHA256, SHA256)
    refused(artifact, tensors, coldsnap.RequestInvalidError)
