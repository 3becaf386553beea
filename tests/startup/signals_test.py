"""A signal at any point: no process and no folder is left, what was measured is kept and marked, and can be gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.startup.process import Process
from tests.startup.helpers import FAST, PROGRAM, checkpoint, document, environment, left_in

_GRACE_S = 60  # for a test machine under load


def command(model: Path, folder: Path, *flags: str) -> list[str]:
    given = [
        f"--model={model}",
        f"--output={folder / 'out'}",
        "--formats=auto,coldsnap",
        "--caches=cold",
        *FAST,
        *flags,
    ]
    return [sys.executable, str(PROGRAM), "--cases=inproc-full,serve-full", "--repeats=1", *given]


# How many lines have been printed when the signal comes: before the first start, while one prepares, among the samples.
@pytest.mark.parametrize(
    ("lines", "signum"),
    [(1, signal.SIGINT), (2, signal.SIGTERM), (5, signal.SIGINT), (6, signal.SIGTERM), (7, signal.SIGINT)],
)
def test_a_signal_leaves_nothing_running(tmp_path: Path, lines: int, signum: signal.Signals) -> None:
    model = checkpoint(tmp_path)
    started = tmp_path / "out" / "child"
    started.parent.mkdir()
    variables = environment(tmp_path, child=str(started))
    with subprocess.Popen(
        command(model, tmp_path),
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.send_signal(signum)
        _, stderr = process.communicate(timeout=_GRACE_S)
    assert process.returncode == 128 + signum, stderr
    assert stderr == (
        f"vllm_startup_matrix: interrupted by {signum.name}; what was measured is kept where --output is given\n"
    )
    assert left_in(tmp_path) == []
    assert running_in(tmp_path) == []

    if lines > 1:  # the survey was over
        partial = document(tmp_path)
        assert (partial["complete"], partial["ended"]) == (False, f"interrupted by {signum.name}")
        assert [each["out"] for each in partial["starts"]] == [None] * len(partial["starts"])
    again = subprocess.run(command(model, tmp_path, "--resume"), env=variables, timeout=_GRACE_S, check=False)
    assert again.returncode == 0
    whole = document(tmp_path)
    assert whole["complete"]
    assert [len(cell["ready_s"]) for cell in whole["cells"]] == [1] * 4
    if lines > 1:
        assert whole["starts"][: len(partial["starts"])] == partial["starts"]


@pytest.mark.parametrize("threads", [0, 1])
def test_a_signal_at_the_birth_of_a_process_ends_it(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held back until somebody is there to end the process, also where another thread, as numpy has, takes it."""

    class Stopped(Exception):
        pass

    def stop(signum: int, frame: object) -> None:
        raise Stopped

    born: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def interrupted(*given: object, **named: object) -> subprocess.Popen[bytes]:
        born.append(popen(*given, **named))  # type: ignore[call-overload]
        os.kill(os.getpid(), signal.SIGTERM)
        return born[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    over = threading.Event()
    for _ in range(threads):
        threading.Thread(target=over.wait).start()
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(Stopped), Process([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ)):
            raise AssertionError("the block began")
    finally:
        signal.signal(signal.SIGTERM, before)
        over.set()
        for process in born:
            process.kill()
    assert len(born) == 1
    assert born[0].returncode is not None


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that have the folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        try:
            if str(folder).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found
