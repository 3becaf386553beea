"""What works here: direct I/O by a real trial, and for what does not work a reason."""

import json
import os
import pathlib
from typing import Any

import pytest

from coldsnap import _native, capabilities, cli, errors, request_schema, settings


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_GDS_PROBE", "raise OSError('libcufile.so.0: not in this test')")


def direct_io(path: pathlib.Path) -> dict[str, Any]:
    found = capabilities.report(path)["direct_io"]
    assert list(path.iterdir()) == []  # the trial leaves nothing
    return found


def test_the_report_is_json_and_names_what_requests_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "cuda_devices", lambda: (0, "no driver here"))
    report = capabilities.report(None)
    assert json.loads(json.dumps(report)) == report
    assert (report["format"], report["direct_io"]) == (1, None)
    assert report["gpu"] == {"works": False, "why": "no driver here", "names": []}
    assert report["device_digests"]["works"] is False
    assert (
        report["gds"]["why"]
        == "there is no GPU to read into; load libcufile.so.0: OSError: libcufile.so.0: not in this test"
    )
    assert report["backends"]["hydration"] == list(settings.BACKENDS)
    assert set(report["refused_operations"]) == set(request_schema.NOT_YET)
    assert "inspect" in report["operations"]
    assert not set(report["refused_operations"]) & set(report["operations"])


def test_what_a_gpu_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests and the driver of cuFile are tried; only whether a file system takes part is for a restore to tell."""
    monkeypatch.setattr(_native, "cuda_devices", lambda: (1, ""))
    monkeypatch.setattr(_native, "device_name", lambda device: f"card {device}")
    monkeypatch.setattr(_native, "why_no_device_digests", lambda device: f"no kernel for {device}")
    monkeypatch.setattr(capabilities, "_GDS_DRIVER_PROBE", "print('path nvidia-fs version 2.7')")
    monkeypatch.setattr(capabilities, "_GDS_PROBE", "print('version', 1160)")
    monkeypatch.setattr(capabilities, "_NVIDIA_FS", pathlib.Path("/nowhere/version"))
    report = capabilities.report(None)
    assert report["gpu"] == {"works": True, "why": "", "names": ["card cuda:0"]}
    assert report["machine"]["gpu"] == "card cuda:0"
    assert report["device_digests"] == {"works": False, "why": "cuda:0: no kernel for cuda:0"}
    assert report["gds"]["works"] is None
    assert report["gds"]["why"].startswith("nvidia-fs version 2.7; whether a file system takes part")
    assert (report["gds"]["library_version"], report["gds"]["nvidia_fs"]) == (1160, None)
    monkeypatch.setattr(_native, "why_no_device_digests", lambda device: "")
    monkeypatch.setattr(capabilities, "_GDS_DRIVER_PROBE", "print('refused open the driver: no')")
    report = capabilities.report(None)
    assert report["device_digests"] == {"works": True, "why": ""}
    assert (report["gds"]["works"], report["gds"]["why"]) == (False, "open the driver: no")
    monkeypatch.setattr(capabilities, "_GDS_PROBE", "print('version', 1140)")
    assert "has version 1140" in capabilities.report(None)["gds"]["why"]


def test_direct_io_is_tried(tmp_path: pathlib.Path) -> None:
    """Whatever the file system of this test is, the answer is the trial's."""
    found = direct_io(tmp_path)
    file = tmp_path / "own"
    file.write_bytes(bytes(65536))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError as refused:
        assert (found["works"], found["why"]) == (False, f"open with O_DIRECT: {refused.strerror}")
    else:
        assert (found["works"], found["block_bytes"]) == (True, 65536)
        assert found["drive"] == (found["file_system"] not in ("tmpfs", "ramfs", "hugetlbfs"))


@pytest.mark.parametrize(
    ("call", "why"), [("pwritev", "write 65536 bytes with O_DIRECT"), ("preadv", "read 65536 bytes with O_DIRECT")]
)
def test_an_open_that_succeeds_proves_nothing(
    call: str, why: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(*arguments: Any) -> int:
        calls.append(arguments)
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, call, refuse)
    monkeypatch.setattr(os, "O_DIRECT", 0)  # so that the trial gets this far on every file system
    found = direct_io(tmp_path)
    assert calls
    assert (found["works"], found["why"]) == (False, f"{why}: Invalid argument")


def test_a_file_system_that_changes_bytes_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_DIRECT", 0)
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: len(buffers[0]))
    found = direct_io(tmp_path)
    assert found["works"] is False
    assert "came back changed" in found["why"]


def test_a_path_that_is_no_folder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.RequestInvalidError, match="it is no folder"):
        capabilities.report(tmp_path / "nowhere")


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coldsnap", "capabilities", f"--path={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path} on " in out
    assert "\nnot there yet  launch, release\n" in out
    assert "\x1b" not in out
    assert cli.main(["coldsnap", "capabilities", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["format"] == 1
    assert out.count("\n") == 1
    assert cli.main(["coldsnap", "capabilities", "--json", f"--path={tmp_path}/nowhere"]) == 2
    failed = capsys.readouterr()
    assert json.loads(failed.out)["error"]["code"] == "request_invalid"
    assert failed.err.startswith("coldsnap capabilities: try direct I/O in ")


def test_the_driver_is_asked_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, where the real library is not installed, the core says so."""
    word, text = capabilities._answer_of(capabilities._GDS_DRIVER_PROBE)
    assert (word in ("path", "refused"), bool(text)) == (True, True)
