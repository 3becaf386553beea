"""``coldsnap store``: what it prints, what it exits with, and what it does."""

from __future__ import annotations

import json
import os
import pathlib
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import cli, errors, mounts, operations, quarantine, request_schema
from coldsnap._bench.sizes import format_size

A, B = {"model": "a"}, {"model": "b"}


@pytest.fixture
def store(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> coldsnap.Store:
    """Two artifacts of one identity, the second current, and one of another."""
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLDSNAP_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("COLDSNAP_STORE_MAX_BYTES", raising=False)
    found = coldsnap.Store(tmp_path / "store")
    coldsnap.capture({"w": np.arange(50_000, dtype=np.float32)}, store=found, identity=A)
    coldsnap.capture({"w": np.zeros(50_000, np.float32)}, store=found, identity=A, replace=True)
    coldsnap.capture({"w": np.ones(9)}, store=found, identity=B)
    return found


def run(*arguments: object) -> int:
    return cli.main(["coldsnap", "store", *map(str, arguments)])


def answer(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    assert run(*arguments, "--json") == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def roots(store: coldsnap.Store) -> list[str]:
    return [entry.artifact_root for entry in store.ls()]


def damage(path: pathlib.Path | None) -> None:
    assert path is not None
    blob = path / "shard-00-00-00" / "weights.safetensors"
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(65536)
        file.write(b"?")


def test_ls(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["root", "identity", "current", "size", "age", "state"]
    assert [line.split()[0] for line in lines[1:4]] == [root[:12] for root in roots(store)]
    assert sum(" yes " in line for line in lines) == 2
    assert lines[4] == "3 artifacts, 768 KiB"
    assert max(map(len, lines)) <= 80
    found = answer(capsys, "ls")["artifacts"]
    assert run("--json", "ls") == 0
    assert [each["artifact_root"] for each in json.loads(capsys.readouterr().out)["artifacts"]] == roots(store)
    assert [each["artifact_root"] for each in found] == roots(store)
    assert [each["quarantine"] for each in found] == [None, None, None]


def test_ls_tells_what_is_wrong(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _ = store.ls()
    quarantine.write(first.artifact_root, errors.DataLossError("x"), "verify", os.environ)
    (second.path / "artifact.json").chmod(0o644)
    (second.path / "artifact.json").write_text("?")
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("QUARANTINED")
    assert lines[2].endswith("UNREADABLE")
    assert any(line.startswith(f"{second.artifact_root[:12]}: its artifact.json can't be read") for line in lines)


def test_verify_looks_at_all_even_behind_a_damaged_one(
    store: coldsnap.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify") == 0
    assert capsys.readouterr().out.count(": intact, ") == 3
    damage(store.ls()[0].path)
    assert run("verify") == 4
    out = capsys.readouterr()
    assert (out.out.count(": intact, "), out.out.count("extent 0 (w): piece 0")) == (2, 1)
    assert out.err == "coldsnap store: 1 of 3 are not intact\n"
    found = answer(capsys, "verify", code=4)["artifacts"]
    assert [each["ok"] for each in found] == [False, True, True]
    assert found[0]["error"]["code"] == "data_loss"
    assert [record.artifact_root for record in quarantine.every(os.environ)] == [roots(store)[0]]
    assert run("verify", roots(store)[1][:8]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_quarantine_ends_for_what_is_intact(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    root = roots(store)[0]
    quarantine.write(root, errors.DataLossError("a drive that was replaced"), "verify", os.environ)
    assert answer(capsys, "unquarantine", root[:8]) == {"format": 1, "artifact_root": root, "ended": True}
    assert quarantine.every(os.environ) == []
    assert run("unquarantine", root) == 0
    assert capsys.readouterr().out == f"{root}: it was not under quarantine\n"


def test_quarantine_stays_for_what_is_damaged(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    entry = store.ls()[0]
    damage(entry.path)
    quarantine.write(entry.artifact_root, errors.DataLossError("x"), "verify", os.environ)
    for name in (entry.artifact_root, entry.path):
        assert answer(capsys, "unquarantine", name, code=4)["error"]["code"] == "data_loss"
        assert len(quarantine.every(os.environ)) == 1
    assert run("unquarantine", "--unverified", entry.artifact_root) == 0
    assert quarantine.every(os.environ) == []


def test_what_is_gone_takes_an_explicit_word(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    gone = "0" * 64
    quarantine.write(gone, errors.DataLossError("x"), "verify", os.environ)
    assert run("unquarantine", gone) == 2
    assert "there is none" in capsys.readouterr().err
    assert len(quarantine.every(os.environ)) == 1
    assert run("unquarantine", "--unverified", gone) == 0
    assert quarantine.every(os.environ) == []


def test_gc(store: coldsnap.Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("gc") == 2
    assert "nothing says what is too much" in capsys.readouterr().err
    assert answer(capsys, "gc", "--max-bytes", "1GiB")["removed"] == []
    monkeypatch.setenv("COLDSNAP_STORE_MAX_BYTES", "1KiB")
    removed = answer(capsys, "gc")
    assert (len(removed["removed"]), removed["nbytes"]) == (1, 327_680)
    assert len(roots(store)) == 2  # current artifacts stay
    monkeypatch.setattr(time, "time", lambda: time.monotonic() + 10**10)
    assert run("gc", "--max-age-days", "1") == 0
    assert len(roots(store)) == 2
    assert run("gc", "--max-age-days", "1", "--not-even-current") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 artifacts removed, 448 KiB"
    assert roots(store) == []


def test_rm(store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = roots(store)
    assert answer(capsys, "rm", first[:8])["removed"]["artifact_root"] == first
    assert roots(store) == [second, third]
    quarantine.write(second, errors.DataLossError("x"), "verify", os.environ)
    damage(store.ls()[0].path)
    nbytes = store.ls()[0].nbytes
    assert run("rm", second) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"removed {second}, {format_size(nbytes)}",
        f"its quarantine stays until: coldsnap store unquarantine --unverified {second}",
    ]
    assert roots(store) == [third]
    with coldsnap.open(store.ls()[0].path):
        assert answer(capsys, "rm", third, code=3)["error"]["code"] == "policy_refused"
    assert roots(store) == [third]
    assert answer(capsys, "rm", third)["quarantined"] is False
    assert answer(capsys, "rm", third, code=2)["error"]["code"] == "request_invalid"


@pytest.mark.parametrize("days", ["nan", "inf", "-1", "x"])
def test_an_age_is_a_number_of_days(days: str, store: coldsnap.Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gc", f"--max-age-days={days}", "--not-even-current") == 2
    assert "invalid" in capsys.readouterr().err
    assert len(roots(store)) == 3


def test_pack_and_unpack(store: coldsnap.Store, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = roots(store)[0]
    file = tmp_path / "a.tar"
    assert answer(capsys, "pack", root[:10], file) == {
        "format": 1, "artifact_root": root, "nbytes": file.stat().st_size
    }  # fmt: skip
    assert answer(capsys, "pack", root, file, code=3)["error"]["code"] == "exists"
    other = tmp_path / "other"
    assert run("unpack", file, "--store", other) == 0
    assert capsys.readouterr().out == f"{root}: unpacked, and is current\n"
    assert answer(capsys, "unpack", file, "--store", other)["already_present"] is True
    assert roots(coldsnap.Store(other)) == [root]
    assert run("unpack", tmp_path / "nowhere.tar") == 5
    assert capsys.readouterr().err.startswith("coldsnap store: open ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "usage: coldsnap store"),
        (["lss"], "invalid choice"),
        (["verify", "xyz"], "it is no root; give 8 to 64"),
        (["verify", "00000000"], "there is none; see coldsnap store ls"),
        (["ls", "--store", "/nowhere"], "use store /nowhere: it is no folder"),
        (["gc"], "nothing says what is too much"),
        (["gc", "--max-bytes", "much"], "'much' is no size"),
    ],
)
def test_bad_requests(
    arguments: list[str], text: str, store: coldsnap.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert text in capsys.readouterr().err


def test_the_default_store_is_used_where_none_is_named(
    store: coldsnap.Store, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLDSNAP_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("ls") == 2
    remedy = "give --store, or set COLDSNAP_STORE"
    assert capsys.readouterr().err == f"coldsnap store: use store {tmp_path}/coldsnap: it is no folder; {remedy}\n"
    store.path.rename(tmp_path / "coldsnap")
    assert run("ls") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 artifacts, 768 KiB"


def test_nothing_is_unpacked_into_a_default_store_that_passes_with_the_container(
    store: coldsnap.Store, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("pack", roots(store)[0], tmp_path / "a.tar") == 0
    monkeypatch.delenv("COLDSNAP_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("overlay", None, "/"))
    assert run("unpack", tmp_path / "a.tar") == 3
    assert f"the default store {tmp_path}/coldsnap: {tmp_path} is on overlay" in capsys.readouterr().err
    assert not (tmp_path / "coldsnap").exists()
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("ext4", None, "/"))
    assert run("unpack", tmp_path / "a.tar") == 0
    assert roots(coldsnap.Store(tmp_path / "coldsnap")) == [roots(store)[0]]


def test_unpack_says_what_went(
    store: coldsnap.Store, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_size = {entry.nbytes: entry.artifact_root for entry in store.ls()}
    small, large = by_size[min(by_size)], by_size[max(by_size)]
    for root in (small, large):
        assert run("pack", root, tmp_path / f"{root}.tar") == 0
    monkeypatch.setenv("COLDSNAP_STORE", str(tmp_path / "other"))
    assert run("unpack", tmp_path / f"{small}.tar") == 0
    monkeypatch.setenv("COLDSNAP_STORE_MAX_BYTES", str(max(by_size)))
    capsys.readouterr()
    assert answer(capsys, "unpack", tmp_path / f"{large}.tar")["removed"] == [small]
    assert run("unpack", tmp_path / f"{small}.tar") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"removed {large}, so that the store keeps to its cap",
        f"{small}: unpacked, and is current",
    ]


@pytest.mark.parametrize("named", [True, False], ids=["named", "default"])
def test_a_request_captures_into_the_store_of_the_variable_or_the_default(
    named: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLDSNAP_STORE", str(tmp_path / "named") if named else "")
    np.save(tmp_path / "w.npy", np.ones(9))
    source = {"numpy": str(tmp_path / "w.npy")}
    text = json.dumps({"format": 1, "operation": "capture", "source": source, "identity": A}).encode()
    request = request_schema.parse(text)
    for kind in ("tmpfs", "ext4"):
        monkeypatch.setattr(mounts, "of_descriptor", lambda fd, kind=kind: mounts.FileSystem(kind, None, "/"))
        if kind == "tmpfs" and not named:
            with pytest.raises(errors.PolicyRefusedError, match="on tmpfs") as caught:
                operations.run(request, lambda done, total: None)
            assert caught.value.receipt is not None
        else:
            found = operations.run(request, lambda done, total: None)
            assert found.report is not None
            place = tmp_path / ("named" if named else "coldsnap")
            assert found.report["path"] == str(coldsnap.Store(place).current(A))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_frsize=1, f_blocks=0, f_bavail=1))
    if named:
        assert operations.run(request, lambda done, total: None).receipt.ok
        return
    with pytest.raises(errors.NoSpaceError, match="a blob of 72 bytes into the default store"):
        operations.run(request, lambda done, total: None)
