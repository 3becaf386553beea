"""The process around a request: one line on standard output in every case, events elsewhere, signals, exit codes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import coldsnap
from coldsnap import operations, receipt_log, receipts, requests
from tests.request import world

VERIFY = b'{"format":1,"operation":"verify","path":"artifact"}'
CAPTURE = b'{"format":1,"operation":"capture","source":{"numpy":"model.npz"},"path":"never"}'
KEYS = {field for field in coldsnap.Receipt.__dataclass_fields__} | {"report"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("top") / "world"
    folder.mkdir()
    world.make(folder)
    return folder


def receipt_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The one line of standard output."""
    assert done.stdout.endswith(b"\n")
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found.keys() == KEYS
    return found


def events_of(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_progress_goes_to_standard_error(folder: pathlib.Path) -> None:
    done = world.ask(folder, VERIFY)
    assert receipt_of(done)["ok"]
    events = events_of(done.stderr)
    assert {event["event"] for event in events} == {"progress"}
    assert {event["operation"] for event in events} == {"verify"}
    assert events[-1]["done_bytes"] == events[-1]["total_bytes"] > 0


def test_progress_goes_to_a_descriptor(folder: pathlib.Path) -> None:
    read, write = os.pipe()
    done = world.ask(folder, VERIFY, f"--progress-fd={write}", pass_fds=(write,))
    os.close(write)
    with open(read, "rb") as events:
        assert events_of(events.read())[-1]["operation"] == "verify"
    assert done.stderr == b""
    assert receipt_of(done)["ok"]


@pytest.mark.parametrize("fd", ["1", "99", "-1", "0", "x", "99999999999999999999"])
def test_a_descriptor_that_will_not_do(folder: pathlib.Path, fd: str) -> None:
    done = world.ask(folder, VERIFY, f"--progress-fd={fd}")
    assert (done.returncode, receipt_of(done)["error"]["code"]) == (2, "request_invalid")
    assert fd in receipt_of(done)["error"]["message"]


def test_a_reader_of_events_that_is_gone_stops_nothing(folder: pathlib.Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = world.ask(folder, VERIFY, f"--progress-fd={write}", pass_fds=(write,))
    os.close(write)
    assert receipt_of(done)["ok"]


def test_a_reader_of_events_that_sleeps_holds_up_nothing(folder: pathlib.Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
    done = world.ask(folder, VERIFY, f"--progress-fd={write}", pass_fds=(write,))
    os.close(read)
    os.close(write)
    assert receipt_of(done)["ok"]


@pytest.mark.parametrize("flags", [["--bogus"], ["other"], ["--progress-fd"]])
def test_wrong_flags_have_a_receipt(folder: pathlib.Path, flags: list[str]) -> None:
    done = world.ask(folder, VERIFY, *flags)
    assert done.returncode == 2
    assert receipt_of(done)["error"]["message"].startswith("read the command line of coldsnap request: ")


def test_files(folder: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "status.json").write_bytes(b'{"format":1,"operation":"status"}')
    for path, code in (("status.json", 0), ("nowhere.json", 2), (".", 2), ("nul\0", 2), ("\udcff", 2)):
        assert requests.main([str(folder / path)]) == code
        out = capfd.readouterr()
        assert out.out.count("\n") == 1
        assert json.loads(out.out)["ok"] is (code == 0)


def test_help_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert requests.main(["--help"]) == 0
    assert "--progress-fd" in capsys.readouterr().out


def test_nothing_else_reaches_standard_output(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatter(request: Any, progress: Any) -> Any:
        print("from Python")
        os.write(1, b"from C\n")
        subprocess.run(["echo", "from a child"], check=True)
        raise ZeroDivisionError("a fault of our own")

    monkeypatch.setattr(operations, "run", chatter)
    path = folder / "verify.json"
    path.write_bytes(VERIFY)
    assert requests.main([str(path)]) == 1
    out = capfd.readouterr()
    error = json.loads(out.out)["error"]
    assert (error["code"], error["message"]) == ("internal", "ZeroDivisionError: a fault of our own")
    assert {"from Python", "from C", "from a child"} <= set(out.err.splitlines())
    assert "Traceback" not in out.err
    assert requests.main([str(path), "--debug"]) == 1
    out = capfd.readouterr()
    assert "Traceback (most recent call last)" in out.err
    assert "Traceback" not in out.out


def test_a_report_that_json_cannot_hold_has_a_receipt(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    receipt = coldsnap.verify(folder / "artifact")
    monkeypatch.setattr(operations, "run", lambda *_: operations.Outcome(receipt, {"ratio": float("nan")}))
    (folder / "verify.json").write_bytes(VERIFY)
    assert requests.main([str(folder / "verify.json")]) == 1
    assert json.loads(capfd.readouterr().out)["error"]["code"] == "internal"


def test_no_memory_is_said_as_such(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def hungry(request: Any, progress: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(operations, "run", hungry)
    (folder / "verify.json").write_bytes(VERIFY)
    assert requests.main([str(folder / "verify.json")]) == 5
    assert json.loads(capfd.readouterr().out)["error"]["code"] == "out_of_memory"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("backend", ["python", "buffered"])
@pytest.mark.parametrize("name", ["verify", "hydrate", "capture"])
def test_a_signal_has_its_receipt_first(
    name: str,
    backend: str,
    number: signal.Signals,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupted(request: Any, progress: Any) -> Any:
        def step(done: int, total: int) -> None:
            os.kill(os.getpid(), number)

        return run(request, step)

    run = operations.run
    monkeypatch.setattr(operations, "run", interrupted)
    monkeypatch.chdir(folder)
    more = {"verify": {}, "hydrate": {"backend": backend}, "capture": {"backend": backend}}[name]
    more |= {"source": {"numpy": "model.npz"}, "path": "never"} if name == "capture" else {"path": "artifact"}
    (folder / "request.json").write_text(json.dumps({"format": 1, "operation": name, **more}), encoding="utf-8")
    assert requests.main(["request.json"]) == 128 + number
    receipt = json.loads(capfd.readouterr().out)
    assert (receipt["operation"], receipt["error"]["code"]) == (name, "cancelled")
    assert signal.getsignal(number) is not signal.SIG_IGN  # put back
    assert not [path.name for path in folder.iterdir() if "never" in path.name]


def test_an_interrupted_calibration_removes_its_blob(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    request = {"format": 1, "operation": "calibrate", "bytes": 64 << 20, "samples": 1000, "device": "host"}
    request |= {"path": str(tmp_path), "output": str(tmp_path / "results")}
    command = [sys.executable, "-m", "coldsnap.cli", "request", "-"]
    env = world.environment(folder)
    with subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        process.stdin = None
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    receipt = receipt_of(subprocess.CompletedProcess(command, process.returncode, out, err))
    assert (process.returncode, receipt["operation"], receipt["error"]["code"]) == (143, "calibrate", "cancelled")
    assert list(tmp_path.iterdir()) == []
    assert b"Traceback" not in err


def test_a_misspelled_variable_is_an_event(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = world.environment(folder) | {"COLDSNAP_HYDRATION_BACKENT": "auto"}
    monkeypatch.setattr(world, "environment", lambda top: environ)
    done = world.ask(folder, b'{"format":1,"operation":"hydrate","path":"artifact"}')
    assert receipt_of(done)["settings"]["backend"] == {"value": "python", "source": "default"}
    (warning,) = [event for event in events_of(done.stderr) if event["event"] == "warning"]
    assert "COLDSNAP_HYDRATION_BACKENT is no setting of coldsnap" in warning["message"]


def test_a_signal_behind_the_operation_changes_nothing(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ignore = requests._ignore_signals

    def late() -> None:
        monkeypatch.setattr(requests, "_ignore_signals", ignore)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal raises")

    monkeypatch.setattr(requests, "_ignore_signals", late)
    monkeypatch.chdir(folder)
    (folder / "verify.json").write_bytes(VERIFY)
    assert requests.main(["verify.json"]) == 0
    assert json.loads(capfd.readouterr().out)["ok"] is True


def run_with(folder: pathlib.Path, source: str, closed: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    """A shell closes a stream and becomes ``coldsnap request``."""
    script = f'exec "{sys.executable}" -m coldsnap.cli request {source} {closed}'
    command, env = ["bash", "-c", script], world.environment(folder)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(command, cwd=folder, env=env, check=False, timeout=60, **streams)


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_closed_streams(closed: str, folder: pathlib.Path) -> None:
    (folder / "verify.json").write_bytes(VERIFY)
    done = run_with(folder, "verify.json", closed)
    assert (done.returncode, receipt_of(done)["ok"], done.stderr) == (
        0,
        True,
        done.stderr if "2" not in closed else b"",
    )


def test_closed_input(folder: pathlib.Path) -> None:
    done = run_with(folder, "-", "<&-")
    assert (done.returncode, receipt_of(done)["error"]["code"]) == (2, "request_invalid")


def test_closed_output_means_that_nothing_is_done(folder: pathlib.Path) -> None:
    (folder / "capture.json").write_bytes(CAPTURE)
    done = run_with(folder, "capture.json", ">&-")
    assert done.returncode == 5
    assert (
        done.stderr
        == b"coldsnap request: open standard output, for the receipt: Bad file descriptor; nothing was done\n"
    )
    assert not (folder / "never").exists()


def test_output_that_nobody_reads(folder: pathlib.Path) -> None:
    (folder / "verify.json").write_bytes(VERIFY)
    read, write = os.pipe()
    os.close(read)
    done = run_with(folder, "verify.json", "", stdout=write)
    os.close(write)
    assert done.returncode == 5
    assert done.stderr.endswith(b"coldsnap request: write the receipt to standard output: nobody reads it\n")


def test_hydrate_writes_what_was_captured(folder: pathlib.Path) -> None:
    request = {"format": 1, "operation": "hydrate", "path": "artifact", "output": "again.safetensors"}
    done = world.ask(folder, json.dumps(request).encode())
    report = receipt_of(done)["report"]
    found, expected = load_file(str(folder / "again.safetensors")), load_file(str(folder / "model.safetensors"))
    assert report == {"device": "host", "tensors": 3, "output_bytes": (folder / "again.safetensors").stat().st_size}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert np.array_equal(found[name], tensor), name


def test_capture_says_where_the_artifact_is(folder: pathlib.Path) -> None:
    request = {"format": 1, "operation": "capture", "source": {"numpy": "model.npz"}, "store": "store"}
    captured = receipt_of(world.ask(folder, json.dumps(request | {"identity": {"scale": 0.5}}).encode()))
    place = captured["report"]["path"]
    request = {"format": 1, "operation": "verify", "path": place}
    verified = receipt_of(world.ask(folder, json.dumps(request).encode()))
    assert verified["ok"]
    assert verified["artifact_root"] == captured["artifact_root"]
    assert pathlib.Path(place) == coldsnap.Store(folder / "store").ls()[0].path.relative_to(folder)


def test_status_has_the_last_receipts(folder: pathlib.Path) -> None:
    first = receipt_of(world.ask(folder, VERIFY))
    damaged = receipt_of(world.ask(folder, VERIFY.replace(b"artifact", b"damaged")))
    status = receipt_of(world.ask(folder, b'{"format":1,"operation":"status","receipts":2}'))
    assert status["report"]["receipts"] == [damaged, first]
    assert status["report"]["receipts_kept"] >= 2
    assert damaged["error"]["code"] == "data_loss"


def test_calibrate_gives_its_results(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    request = {"format": 1, "operation": "calibrate", "bytes": 4 << 20, "samples": 1, "device": "host", "seed": 7}
    request |= {"cache": ["warm"], "path": str(tmp_path), "output": str(tmp_path / "results"), "sweep": False}
    receipt = receipt_of(world.ask(folder, json.dumps(request).encode()))
    results = receipt["report"]["results"]
    assert results == json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))
    assert (results["seed"], results["payload_bytes"]) == (7, 4 << 20)
    assert any("every restore was verified" in line for line in receipt["report"]["printed"])


def test_receipts_that_cannot_be_kept_fail_nothing(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "environment", lambda top: {**os.environ, "COLDSNAP_RECEIPT_DIR": "/proc/none"})
    done = world.ask(folder, VERIFY)
    assert (done.returncode, receipt_of(done)["ok"]) == (0, True)
    assert b"coldsnap request: keep the receipt" in done.stderr


def test_no_more_than_the_last_receipts_are_kept(tmp_path: pathlib.Path) -> None:
    environ = {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}
    for number in range(receipt_log.KEPT + 2):
        receipt_log.keep(receipts.Account("verify", wall_s=float(number)).receipt().to_json(), environ)
    found = receipt_log.last(1000, environ)
    assert [entry["wall_s"] for entry in found] == list(range(receipt_log.KEPT + 1, 1, -1))
    assert receipt_log.last(0, environ) == []
