"""One line for each operation, with its receipt; none where nobody asked, none twice."""

from __future__ import annotations

import json
import logging
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import coldsnap
from coldsnap import cli

WEIGHTS = {"w": np.arange(50_000, dtype=np.float32)}


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What a handler of the application gets, as it comes."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    logger = logging.getLogger("coldsnap")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def hydrate(path: pathlib.Path, **more: str) -> coldsnap.Receipt:
    return coldsnap.hydrate(path, {"w": np.empty(50_000, np.float32)}, **more)


def test_a_capture_a_verification_and_a_restore_have_one_line_each(
    tmp_path: pathlib.Path, records: list[logging.LogRecord]
) -> None:
    path = tmp_path / "artifact"
    receipts = [
        coldsnap.capture(WEIGHTS, path, backend="buffered"),
        coldsnap.verify(path, admit=True),
        hydrate(path),
        hydrate(path, backend="buffered", verify="none"),
    ]
    assert [record.coldsnap for record in records] == [receipt.as_dict() for receipt in receipts]  # type: ignore[attr-defined]
    assert {(record.name, record.levelname) for record in records} == {("coldsnap", "INFO")}
    lines = [record.getMessage() for record in records]
    for line, receipt in zip(lines, receipts, strict=True):
        assert f" 200000 bytes in {receipt.wall_s:.3f} s, {(receipt.bytes_per_second or 0) / 1e9:.2f} GB/s; " in line
        assert line.endswith(f", artifact {receipt.artifact_root}")
    assert [line.split()[0] for line in lines] == ["captured", "verified", "restored", "restored"]
    assert "; buffered 200000 bytes (explicit" in lines[0]
    assert "; crc32+sha256 on host, " in lines[1]
    assert "; python 200000 bytes (provider_default); crc32+sha256 on host, " in lines[2]
    assert "; digests none, " in lines[3]


def test_a_failure_is_a_warning_with_its_receipt(tmp_path: pathlib.Path, records: list[logging.LogRecord]) -> None:
    with pytest.raises(coldsnap.RequestInvalidError) as caught:
        coldsnap.verify(tmp_path / "nowhere")
    with pytest.raises(coldsnap.Error):
        hydrate(tmp_path / "nowhere")
    with pytest.raises(coldsnap.Error):
        coldsnap.capture(WEIGHTS)
    assert [record.levelname for record in records] == ["WARNING"] * 3
    assert records[0].getMessage().startswith("verify failed after 0.0")
    assert f": request_invalid: {caught.value.message} (" in records[0].getMessage()
    assert records[0].coldsnap["error"]["code"] == "request_invalid"  # type: ignore[attr-defined]


def test_ranks_have_a_line_each(tmp_path: pathlib.Path, records: list[logging.LogRecord]) -> None:
    group = coldsnap.RankGroup("a", 0, ["shard-00-00-00"], timeout_s=60)
    receipt = coldsnap.capture_rank(WEIGHTS, group, store=tmp_path / "store", identity={"model": 1})
    assert [record.coldsnap for record in records] == [receipt.as_dict()]  # type: ignore[attr-defined]


def test_the_library_says_nothing_by_itself(tmp_path: pathlib.Path) -> None:
    program = f"import coldsnap\ntry:\n coldsnap.verify({str(tmp_path / 'x')!r})\nexcept coldsnap.Error: pass\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    handlers = logging.getLogger("coldsnap").handlers
    assert [type(each) for each in handlers] == [logging.NullHandler]


@pytest.mark.parametrize("flags", [["--log-level=info"], ["--debug", "--log-level", "info"], ["--log-level=debug"]])
def test_the_command_line_logs_each_line_once(
    flags: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coldsnap.capture(WEIGHTS, tmp_path / "artifact")
    root = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(root)
    try:
        for _ in range(2):
            assert cli.main(["coldsnap", *flags, "verify", str(tmp_path / "artifact")]) == 0
            out = capsys.readouterr()
            [line] = out.err.splitlines()
            assert " INFO coldsnap: verified 200000 bytes in " in line
            assert "intact: 200000 bytes" in out.out
    finally:
        logging.getLogger().removeHandler(root)
    assert cli.main(["coldsnap", "verify", str(tmp_path / "artifact")]) == 0
    assert capsys.readouterr().err == ""


def test_a_level_can_leave_lines_out(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    coldsnap.capture(WEIGHTS, tmp_path / "artifact")
    assert cli.main(["coldsnap", "--log-level=warning", "verify", str(tmp_path / "artifact")]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["coldsnap", "--log-level=warning", "verify", str(tmp_path / "nowhere")]) == 2
    assert "WARNING coldsnap: verify failed after " in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--log-level=loud"], ["--log-level", "loud"], ["--log-level="]])
def test_other_levels_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coldsnap", *flags, "verify", "x"]) == 2
    assert "known: debug, info, warning, error" in capsys.readouterr().err


def test_a_request_logs_beside_its_one_line(tmp_path: pathlib.Path) -> None:
    coldsnap.capture(WEIGHTS, tmp_path / "artifact")
    request = json.dumps({"format": 1, "operation": "verify", "path": str(tmp_path / "artifact")})
    command = [sys.executable, "-m", "coldsnap.cli", "--log-level=info", "request", "-"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["ok"]
    assert done.stderr.count(" INFO coldsnap: verified 200000 bytes") == 1
