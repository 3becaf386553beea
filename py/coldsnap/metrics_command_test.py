"""Metrics: the newest receipt of each operation, what is not known left out, in OpenMetrics' own form."""

import json
import os
import pathlib
import re

import pytest

from coldsnap import cli, errors, metrics, quarantine, receipt_log, receipts
from coldsnap.settings import Setting

_LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? -?[0-9.e+-]+')


def receipt(wall_s: float, failure: errors.Error | None = None, operation: str = "hydrate") -> receipts.Receipt:
    account = receipts.Account(operation, payload_bytes=1000, wall_s=wall_s, stages_s={"read": 0.25})
    account.settings = {"verify": Setting("crc32", "default")}
    account.routes = [{"route": "direct", "bytes": 1000, "extents": 1}]
    return account.receipt(failure)


@pytest.fixture
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    for each in (
        receipt(1.0),
        receipt(0.5, errors.IoError('a "quoted" thing')),
        receipt(2.0),
        receipt(3.0, operation="verify"),
    ):
        receipt_log.keep(each.to_json(), os.environ)
    return tmp_path


def test_the_newest_of_each_operation_is_told(state: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    quarantine.write("a" * 64, errors.DataLossError("x"), "verify", os.environ)
    assert cli.main(["coldsnap", "metrics"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    for line in (
        'coldsnap_last_ok{operation="hydrate"} 1',
        'coldsnap_last_wall_seconds{operation="hydrate"} 2.0',
        'coldsnap_last_wall_seconds{operation="verify"} 3.0',
        'coldsnap_last_bytes_per_second{operation="hydrate"} 500.0',
        'coldsnap_last_stage_seconds{operation="hydrate",stage="read"} 0.25',
        'coldsnap_last_route_bytes{operation="hydrate",route="direct"} 1000',
        'coldsnap_kept_receipts{operation="hydrate",end="ok"} 2',
        'coldsnap_kept_receipts{operation="hydrate",end="io"} 1',
        "coldsnap_quarantined_artifacts 1",
    ):
        assert line in lines
    assert "ceiling_ratio" not in out  # nobody calibrated
    assert out.endswith("\n# EOF\n")
    assert all(line.startswith("# ") or _LINE.fullmatch(line) for line in lines)


def test_each_family_stands_once_and_its_name_ends_with_its_unit(
    state: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["coldsnap", "metrics"])
    lines = capsys.readouterr().out.splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) >= 7
    for line in lines:
        if line.startswith("# UNIT "):
            assert line.split()[2].endswith("_" + line.split()[3])


def test_labels_are_escaped() -> None:
    assert metrics._escaped('a\\b"c\nd') == 'a\\\\b\\"c\\nd'


def test_a_file_is_replaced_whole(state: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = state / "coldsnap.prom"
    file.write_text("old")
    assert cli.main(["coldsnap", "metrics", f"--output={file}"]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text().endswith("# EOF\n")
    assert [path.name for path in state.iterdir() if path.is_file()] == ["coldsnap.prom"]
    assert cli.main(["coldsnap", "metrics", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == file.read_text()
    assert cli.main(["coldsnap", "metrics", f"--output={state}/nowhere/x"]) == 2


def test_without_receipts_there_is_little_to_tell(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))
    assert cli.main(["coldsnap", "metrics"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("# ")] == [
        "coldsnap_quarantined_artifacts 0"
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"operation": "hydrate"}'])
def test_a_damaged_receipt_is_left_out(text: str, state: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "state" / "receipts" / f"{'9' * 20}-1.json").write_text(text)
    assert cli.main(["coldsnap", "metrics"]) == 0
    assert 'coldsnap_last_wall_seconds{operation="hydrate"} 2.0' in capsys.readouterr().out.splitlines()
    assert len(receipt_log.last(9, os.environ)) == 4
