"""``coldsnap verify``: what it prints, and what it exits with."""

import json
import pathlib

import numpy as np
import pytest

from coldsnap import _native, cli, errors, tensors, terminal


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    weights = {"w": np.arange(70_000, dtype=np.uint8)}
    _native.write_artifact(str(tmp_path / "artifact"), tensors.native_specs(weights), "{}", "{}", "{}")
    return tmp_path / "artifact"


def run(*arguments: object) -> int:
    return cli.main(["coldsnap", "verify", *map(str, arguments)])


def damage(path: pathlib.Path) -> None:
    blob = path / "shard-00-00-00" / "weights.safetensors"
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(65536)
        file.write(b"x")


def test_an_intact_artifact(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path) == 0
    out = capsys.readouterr()
    assert out.out.startswith("intact: 70000 bytes of weights in ")
    assert (out.out.count("\n"), out.err) == (1, "")
    assert not (path.parent / "state").exists()


def test_admitting_prints_the_digest_to_pin(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--admit", path) == 0
    marker = next((path.parent / "state" / "trust").iterdir())
    assert capsys.readouterr().out.splitlines()[1] == f"admitted: shard-00-00-00 {marker.stem}"


def test_the_receipt_is_one_line_of_json(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", path) == 0
    receipt = json.loads(capsys.readouterr().out)
    assert (receipt["ok"], receipt["operation"], receipt["payload_bytes"]) == (True, "verify", 70_000)
    damage(path)
    assert run("--json", path) == errors.DataLossError.exit_code
    out = capsys.readouterr()
    assert json.loads(out.out)["error"]["code"] == "data_loss"
    assert out.out.count("\n") == 1
    assert "extent 0 (w): piece 0" in out.err


def test_a_failure_is_one_sentence(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(path)
    assert run(path) == 4
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("coldsnap verify: verify shard-00-00-00: extent 0 (w): piece 0")
    path.chmod(0o777)
    assert run("--admit", path) == 3
    assert run(path / "nowhere") == 2


def test_an_interrupt_has_a_receipt_too(
    path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "progress", lambda: interrupt)
    assert run("--json", path) == 130
    out = capsys.readouterr()
    assert json.loads(out.out)["error"]["code"] == "cancelled"
    assert out.err == "coldsnap verify: interrupted\n"


@pytest.mark.parametrize("arguments", [[], ["--adm", "x"], ["a", "b"], ["--other", "a"]])
def test_wrong_flags(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "usage: coldsnap verify" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "--admit" in capsys.readouterr().out
    assert cli.main(["coldsnap", "--help"]) == 0
    assert "verify  " in capsys.readouterr().out
