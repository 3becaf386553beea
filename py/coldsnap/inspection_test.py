"""What an artifact is and holds: the report, and the command that prints it."""

import json
import os
import pathlib
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import cli, errors, inspection, quarantine

BASE = np.arange(40_000, dtype=np.float32).reshape(200, 200)


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    weights: dict[str, Any] = {"base": BASE, "base.row": BASE[3], "empty": np.zeros((0, 3)), "\x1b[31mred": np.ones(3)}
    weights |= {f"layer.{index:02d}": np.full(5, index, np.int8) for index in range(20)}
    coldsnap.capture(weights, tmp_path / "artifact", identity={"model": "example"}, scalars={"eps": 1})
    return tmp_path / "artifact"


def run(*arguments: object) -> int:
    return cli.main(["coldsnap", "inspect", *map(str, arguments)])


def test_the_report_is_what_the_artifact_says(path: pathlib.Path) -> None:
    report = inspection.report(path)
    assert json.loads(json.dumps(report)) == {**report, "shards": json.loads(json.dumps(report["shards"]))}
    with coldsnap.open(path) as artifact:
        [shard] = report["shards"]
        assert report["artifact_root"] == artifact.artifact_root
        assert (report["identity"], shard["scalars"]) == ({"model": "example"}, {"eps": 1})
        assert (report["payload_bytes"], report["blob_bytes"]) == (artifact.payload_bytes, artifact.blob_bytes)
        assert [tensor["name"] for tensor in shard["tensors"]] == list(artifact)
        assert [extent["sha256t"] for extent in shard["extents"]] == [each.sha256t for each in artifact.extents]
    base = next(tensor for tensor in shard["tensors"] if tensor["name"] == "base")
    assert (base["dtype"], base["shape"], base["nbytes"]) == ("F32", (200, 200), 160_000)
    assert shard["shared"] == {str(base["extent"]): ["base", "base.row"]}
    assert shard["dtypes"]["I8"] == {"tensors": 20, "nbytes": 100}
    assert 0 <= shard["resident"] <= 1


def test_no_path_but_the_callers_is_in_it(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    report = inspection.report("artifact")
    assert report["shards"][0]["trust"]["state"] == "not_admitted"
    assert str(path.parent) not in json.dumps(report)


def test_trust_is_what_a_restore_would_meet(path: pathlib.Path) -> None:
    coldsnap.verify(path, admit=True)
    [shard] = inspection.report(path)["shards"]
    assert shard["trust"]["state"] == "admitted"
    os.utime(path / shard["name"] / "weights.safetensors")
    trust = inspection.report(path)["shards"][0]["trust"]
    assert trust["state"] == "not_admitted"
    assert "mtime_ns is " in trust["detail"]


def test_pins_are_told(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = inspection.report(path)["shards"][0]["manifest_sha256"]
    monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", digest)
    assert inspection.report(path)["shards"][0]["trust"]["state"] == "pinned"
    monkeypatch.setenv("COLDSNAP_TRUST_MANIFEST", "0" * 64)
    assert inspection.report(path)["shards"][0]["trust"]["state"] == "policy_refused"


def test_quarantine_is_told(path: pathlib.Path) -> None:
    report = inspection.report(path)
    assert report["quarantine"] is None
    quarantine.write(report["artifact_root"], errors.DataLossError("extent 0"), "verify", os.environ)
    found = inspection.report(path)["quarantine"]
    assert (found["code"], found["message"]) == ("data_loss", "extent 0")
    (path.parent / "state").chmod(0o777)
    found = inspection.report(path)["quarantine"]  # nobody knows, and the rest is told all the same
    assert found["code"] == "unknown"
    assert found["message"].startswith("open the folder the state folder: ")


def test_one_shard(path: pathlib.Path) -> None:
    assert [shard["name"] for shard in inspection.report(path, "shard-00-00-00")["shards"]] == ["shard-00-00-00"]
    with pytest.raises(errors.RequestInvalidError, match="shard-09-00-00"):
        inspection.report(path, "shard-09-00-00")


def test_people_get_a_page(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path) == 0
    out = capsys.readouterr()
    assert (out.err, "\x1b" in out.out) == ("", False)
    lines = out.out.splitlines()
    assert lines[0].startswith("artifact    ")
    assert 'identity    {"model":"example"}' in lines
    assert any(line.split() == ["\\x1b[31mred", "F64", "3", "24", "1"] for line in lines)
    assert any(line.split() == ["base.row", "F32", "200", "800", "0*"] for line in lines)
    assert any(line.split() == ["empty", "F64", "0x3", "0", "-"] for line in lines)
    assert lines[-1] == "and 4 more: --all lists them"
    assert run("--all", path) == 0
    out = capsys.readouterr()
    assert "layer.19" in out.out
    assert "more: --all" not in out.out


def test_programs_get_json(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", path) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert len(json.loads(out)["shards"][0]["tensors"]) == 24
    assert run("--json", path / "nowhere") == 2
    failed = capsys.readouterr()
    assert json.loads(failed.out)["error"]["code"] == "request_invalid"
    (path / "artifact.json").chmod(0o644)
    (path / "artifact.json").write_text("{}")
    assert run(path) == 4
    assert capsys.readouterr().err.startswith("coldsnap inspect: ")
