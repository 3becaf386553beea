"""``--metrics FILE``: the text is written behind the command, whole, of a failure too; or the command says why not."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest

import coldsnap
from coldsnap import cli, receipt_log
from tests.cli import helpers


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    for name in ("artifact", "damaged"):
        coldsnap.capture({"w": np.arange(5000, dtype=np.float64)}, tmp_path / name, identity={"model": name})
    blob = tmp_path / "damaged" / "shard-00-00-00" / "weights.safetensors"
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(65536)
        file.write(b"?")
    return tmp_path


def run(folder: pathlib.Path, *arguments: str) -> tuple[int, list[str]]:
    """A command with --metrics; its exit code, and the lines of the file."""
    file = folder / "coldsnap.prom"
    code = cli.main(["coldsnap", *arguments, f"--metrics={file}"])
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    return code, file.read_text().splitlines() if file.exists() else []


def test_verify(folder: pathlib.Path) -> None:
    code, lines = run(folder, "verify", str(folder / "artifact"))
    assert code == 0
    assert 'coldsnap_last_ok{operation="verify"} 1' in lines
    assert 'coldsnap_last_payload_bytes{operation="verify"} 40000' in lines
    assert lines[-1] == "# EOF"
    assert not any(line.startswith("coldsnap_kept_receipts") for line in lines)  # only requests are kept
    code, lines = run(folder, "verify", str(folder / "damaged"))
    assert code == 4
    assert 'coldsnap_last_ok{operation="verify"} 0' in lines
    assert "coldsnap_quarantined_artifacts 1" in lines


def test_store_verify_tells_the_last_one(folder: pathlib.Path) -> None:
    store = coldsnap.Store(folder / "store")
    for count in (1000, 2000):
        coldsnap.capture({"w": np.ones(count)}, store=store, identity={"count": count})
    code, lines = run(folder, "store", "verify", "--store", str(store.path))
    assert code == 0
    last = store.ls()[-1].path
    with coldsnap.open(last) as artifact:
        assert f'coldsnap_last_payload_bytes{{operation="verify"}} {artifact.payload_bytes}' in lines


def test_request(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code, ok in (("artifact", 0, 1), ("damaged", 4, 0)):
        file = folder / "request.json"
        file.write_text(json.dumps({"format": 1, "operation": "verify", "path": str(folder / name)}))
        done = helpers.coldsnap(folder, "request", str(file), f"--metrics={folder}/coldsnap.prom")
        assert done.returncode == code, done.stderr
        assert done.stdout.count(b"\n") == 1
        lines = (folder / "coldsnap.prom").read_text().splitlines()
        assert f'coldsnap_last_ok{{operation="verify"}} {ok}' in lines
    assert 'coldsnap_kept_receipts{operation="verify",end="ok"} 1' in lines
    assert 'coldsnap_kept_receipts{operation="verify",end="data_loss"} 1' in lines
    assert len(receipt_log.last(9, os.environ)) == 2


@pytest.mark.parametrize("file", ["nowhere/coldsnap.prom", "artifact", ""])
def test_a_place_that_is_none_is_refused_before_anything_is_read(
    file: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(folder / file)
    assert cli.main(["coldsnap", "verify", str(folder / "damaged"), "--metrics", path]) == 2
    assert capsys.readouterr().err == (
        f"coldsnap verify: write metrics to {path}: it is no file in a folder that is there; name a file in one\n"
    )
    done = helpers.coldsnap(folder, "request", "-", "--metrics", path, data=b"{}")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "request_invalid")
    assert f"write metrics to {path}" in json.loads(done.stdout)["error"]["message"]


def test_metrics_that_cannot_be_written_are_the_exit_code_of_work_that_was_done(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "state").mkdir(exist_ok=True)
    (folder / "state").chmod(0o777)
    code, lines = run(folder, "verify", str(folder / "artifact"), "--json")
    assert (code, lines) == (3, [])
    out = capsys.readouterr()
    assert json.loads(out.out)["ok"] is True
    assert "others may write to it" in out.err
    request = json.dumps({"format": 1, "operation": "inspect", "path": str(folder / "artifact")})
    done = helpers.coldsnap(folder, "request", "-", f"--metrics={folder}/x.prom", data=request.encode())
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (3, True)
    assert b"coldsnap request: write metrics to " in done.stderr
