"""The profile: written, merged, found again, and ignored with one warning when it can't be used."""

import dataclasses
import json
import os
import pathlib
import pwd
import re
import threading
import warnings
from typing import Any

import pytest

from coldsnap import errors, mounts, profile, state
from coldsnap.profile import Best, Ceilings, Entry, Key

BEST = Best(read_threads=4, chunk_bytes=1 << 22, queue_depth=8, bytes_per_second=2.5e9)


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


def entry_of(mount: str = "ext4:uuid:1", **changed: Any) -> Entry:
    entry = Entry(Key(mount, "NVIDIA H200", "6.8.0"), BEST, None, Ceilings(5.5e10, 2.8e9, None), "2026-01-01", "abc")
    return dataclasses.replace(entry, **changed)


def text_of(*entries: Entry, **changed: Any) -> str:
    return json.dumps({"format": 1, "entries": [dataclasses.asdict(entry) for entry in entries], **changed})


def write(environ: dict[str, str], text: str) -> pathlib.Path:
    path = state.profile_path(environ)
    path.parent.mkdir(0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def warned(environ: dict[str, str]) -> str:
    with pytest.warns(UserWarning) as caught:
        assert profile.read(environ) is None
    assert len(caught) == 1
    return str(caught[0].message)


def test_without_a_profile_there_is_nothing_to_say(environ: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert profile.read(environ) is None
    assert profile.find(None, "/", "host") is None
    assert profile.values(None, "direct") == {}


def test_what_was_written_is_read(environ: dict[str, str]) -> None:
    entries = [entry_of(), entry_of("ext4:uuid:2", direct=None, buffered=BEST, commit=None)]
    for entry in entries:
        profile.update(entry, environ)
    assert profile.read(environ) == profile.Profile(tuple(entries))
    document = json.loads(state.profile_path(environ).read_text())
    assert set(document) == {"format", "entries"}
    assert set(document["entries"][0]) == {"key", "direct", "buffered", "ceilings", "measured_at", "commit"}


def test_an_entry_takes_the_place_of_the_one_with_its_key_and_no_other(environ: dict[str, str]) -> None:
    first = entry_of()
    others = [
        dataclasses.replace(first, key=dataclasses.replace(first.key, **{field: "other"}))
        for field in ("mount", "gpu", "kernel")
    ]
    newer = entry_of(measured_at="2026-02-02")
    for entry in (first, *others, newer):
        profile.update(entry, environ)
    found = profile.read(environ)
    assert found is not None
    assert found.entries == (*others, newer)


def test_the_oldest_entries_go_first(environ: dict[str, str]) -> None:
    write(environ, text_of(*(entry_of(f"ext4:uuid:{n}") for n in range(profile.MAX_ENTRIES))))
    profile.update(entry_of("ext4:uuid:new"), environ)
    found = profile.read(environ)
    assert found is not None
    assert len(found.entries) == profile.MAX_ENTRIES
    assert [found.entries[0].key.mount, found.entries[-1].key.mount] == ["ext4:uuid:1", "ext4:uuid:new"]


def test_two_calibrations_at_once_lose_nothing(environ: dict[str, str]) -> None:
    threads = [threading.Thread(target=profile.update, args=(entry_of(f"ext4:uuid:{n}"), environ)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = profile.read(environ)
    assert found is not None
    assert {entry.key.mount for entry in found.entries} == {f"ext4:uuid:{n}" for n in range(16)}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "Expecting value"),
        (text_of(entry_of())[:-9], "it is damaged"),
        (text_of(format=2), r"\$\.format is 2"),
        (text_of(other=1), "the unknown key 'other'"),
        (text_of(entry_of(), entry_of()), "two entries have the same key"),
        (text_of(entry_of()).replace('"commit"', '"comment"'), r"\$\.entries\[0\] has no 'commit'"),
        (text_of(entry_of()).replace('"queue_depth": 8', '"queue_depth": 65'), r"direct\.queue_depth is 65"),
        (text_of(entry_of()).replace('"chunk_bytes": 4194304', '"chunk_bytes": 4194305'), "a multiple of 65536"),
        (text_of(entry_of()).replace('"read_threads": 4', '"read_threads": 4, "x": 1'), "the unknown key 'x'"),
    ],
)
def test_a_damaged_profile_is_ignored_with_one_warning(environ: dict[str, str], text: str, what: str) -> None:
    path = write(environ, text)
    message = warned(environ)
    assert message.startswith(f"the profile is ignored: read {path}: it is damaged: ")
    assert re.search(what, message)
    assert message.endswith("; measure again: coldsnap calibrate")


def test_a_profile_that_others_may_write_is_ignored_with_one_warning(environ: dict[str, str]) -> None:
    path = write(environ, text_of(entry_of()))
    assert profile.read(environ) is not None
    path.chmod(0o666)
    assert "others may write to it (mode 0666)" in warned(environ)
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))
    assert "it is a link" in warned(environ)


def test_a_profile_that_cannot_be_found_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert profile.read({}) is None
    assert "is relative" in warned({"COLDSNAP_PROFILE": "profile.json"})


def test_the_profile_may_lie_where_a_variable_says(environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    environ["COLDSNAP_PROFILE"] = str(tmp_path / "of" / "all" / "profile.json")
    profile.update(entry_of(), environ)
    assert (tmp_path / "of" / "all" / "profile.json").is_file()
    assert not (tmp_path / "state").exists()
    assert profile.read(environ) == profile.Profile((entry_of(),))
    (tmp_path / "of" / "all").chmod(0o777)
    with pytest.raises(errors.PolicyRefusedError, match="or let COLDSNAP_PROFILE name"):
        profile.update(entry_of(), environ)


def test_a_damaged_profile_is_replaced(environ: dict[str, str]) -> None:
    write(environ, "{")
    with pytest.warns(UserWarning, match="it is damaged"):
        profile.update(entry_of(), environ)
    assert profile.read(environ) == profile.Profile((entry_of(),))


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"direct": dataclasses.replace(BEST, chunk_bytes=1)}, r"entry\.direct\.chunk_bytes is 1"),
        ({"ceilings": Ceilings(float("nan"), None, None)}, r"entry\.ceilings\.h2d is nan"),
        ({"measured_at": ""}, r"entry\.measured_at is ''"),
    ],
)
def test_an_entry_that_nobody_could_read_is_not_written(
    environ: dict[str, str], changed: dict[str, Any], where: str
) -> None:
    with pytest.raises(errors.RequestInvalidError, match=f"write the profile: {where}"):
        profile.update(entry_of(**changed), environ)
    assert not state.profile_path(environ).exists()


def test_values_are_those_of_the_route() -> None:
    entry = entry_of()
    assert profile.values(entry, "direct") == {"read_threads": 4, "chunk_bytes": 1 << 22, "queue_depth": 8}
    for route in ("buffered", "gds", "python", "key"):
        assert profile.values(entry, route) == {}


class Card:
    def device_name(self, device: str) -> str:
        if device != "cuda:0":
            raise errors.RouteUnavailableError(f"no {device}")
        return "NVIDIA H200"


def test_an_entry_is_found_by_mount_card_and_kernel(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "load_native", Card)
    entries = {}
    for device in ("host", "cuda:0"):
        key = profile.key_of(tmp_path, device)
        assert key == Key(
            profile.mount_key(tmp_path), Card().device_name(device) if device != "host" else None, key.kernel
        )
        entries[device] = entry_of(key=key)
    found = profile.Profile((entry_of(), *entries.values()))
    assert profile.find(found, tmp_path, "host") == entries["host"]
    assert profile.find(found, str(tmp_path), "cuda:0") == entries["cuda:0"]
    assert profile.find(found, tmp_path, "cuda:1") is None
    assert profile.find(found, tmp_path / "missing", "host") is None
    assert profile.find(found, "/proc", "host") is None  # another mount
    fd = os.open(tmp_path, os.O_RDONLY)
    assert profile.find(found, fd, "host") == entries["host"]
    os.close(fd)  # still open
    for field in ("mount", "gpu", "kernel"):
        other = dataclasses.replace(entries["host"].key, **{field: "other"})
        assert profile.find(profile.Profile((entry_of(key=other),)), tmp_path, "host") is None


def test_a_key_names_the_mount_and_no_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("nfs4", None, "/srv/models"))
    without = profile.mount_key(tmp_path)
    assert re.fullmatch(r"nfs4:mounted-at:[0-9a-f]{64}", without)
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("nfs4", None, "/srv/others"))
    assert profile.mount_key(tmp_path) != without
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("xfs", "11-22", "/srv/models"))
    assert profile.mount_key(tmp_path) == "xfs:uuid:11-22"
