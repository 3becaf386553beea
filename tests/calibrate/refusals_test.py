"""Every wrong flag: exit code 2, one sentence on stderr, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coldsnap import calibrate as calibration
from coldsnap import errors
from coldsnap._bench import host
from tests.calibrate.helpers import calibrate, left_in

WRONG = [
    (["--bytes=abc"], "'abc'"),
    (["--bytes=-1"], "'-1'"),
    (["--bytes="], "''"),
    (["--bytes=1"], "2097152"),
    (["--bytes=99999999999999999999"], "99999999999999999999"),
    (["--byte=8MiB"], "did you mean --bytes?"),
    (["--nonsense"], "--nonsense is unknown"),
    (["8MiB"], "'8MiB'"),
    (["--chunk_bytes=1000"], "65536"),
    (["--chunk_bytes=0"], "chunk_bytes"),
    (["--queue_depth=0"], "1 to 64"),
    (["--queue_depth=65"], "1 to 64"),
    (["--queue_depth=two"], "'two'"),
    (["--chunk_bytes=64MiB", "--queue_depth=64"], "4294967296"),
    (["--samples=0"], "1 to 1000"),
    (["--samples=x"], "1 to 1000"),
    (["--seed=-1"], "--seed=-1"),
    (["--commit=main"], "--commit=main"),
    (["--device=gpu"], "cuda:N"),
    (["--device=cuda:x"], "cuda:N"),
    (["--device=cuda:999"], "--device=host"),
    (["--path="], "--path"),
    (["--path=missing"], "does not exist"),
    (["--path=file"], "not a folder"),
    (["--output=file"], "is a file"),
    (["--output=file/below"], "is a file"),
]


@pytest.mark.parametrize(("flags", "says"), WRONG, ids=[" ".join(flags) for flags, _ in WRONG])
def test_a_wrong_flag_is_one_sentence(tmp_path: Path, flags: list[str], says: str) -> None:
    (tmp_path / "file").write_text("x")
    given = [f"--path={tmp_path}", f"--output={tmp_path}/out", *flags]
    done = calibrate(*given, BUILD_WORKING_DIRECTORY=str(tmp_path))
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("coldsnap calibrate: ")
    assert says in done.stderr
    assert left_in(tmp_path) == ["file"]


def test_it_refuses_before_it_fills_the_disk(tmp_path: Path) -> None:
    facts = os.statvfs(tmp_path)
    free = facts.f_bavail * facts.f_frsize
    done = calibrate(f"--bytes={free}", f"--path={tmp_path}", f"--output={tmp_path}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "5 %" in done.stderr
    assert str(free) in done.stderr
    assert left_in(tmp_path) == []


def test_the_rule_for_space_has_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1000 blocks of 1 MiB, 150 free: 50 stay free, so 100 MiB / 1.1 is the most.
    facts = os.statvfs_result((1 << 20, 1 << 20, 1000, 150, 150, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    host.require_space(tmp_path, int((100 << 20) / 1.1))
    with pytest.raises(errors.RequestInvalidError, match="--bytes=94371840"):
        host.require_space(tmp_path, (91 << 20))


def test_it_refuses_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "memory_available", lambda: (1 << 30, "the memory cgroup's limit of 1 GiB"))
    host.require_memory(256 << 20, 16 << 20, on_host=True)
    with pytest.raises(errors.RequestInvalidError, match="1073741824 are available by the memory cgroup's limit"):
        host.require_memory(512 << 20, 16 << 20, on_host=True)


def test_a_wheel_is_told_its_commit() -> None:
    for commit in ("0123456789" * 4, "ab" * 20 + "-dirty"):
        request = calibration.parse_flags(["calibrate", f"--commit={commit}"])
        assert request is not None and request.commit == commit


@pytest.mark.parametrize(("text", "nbytes"), [("512MiB", 536870912), ("536870912", 536870912), ("1GiB", 1 << 30)])
def test_sizes_have_units(text: str, nbytes: int) -> None:
    request = calibration.parse_flags(["calibrate", f"--bytes={text}", f"--chunk_bytes={64 << 20}", "--queue_depth=2"])
    assert request is not None
    assert request.nbytes == nbytes
    assert request.hydration["chunk_bytes"].value == 67108864
    assert request.hydration["queue_depth"].value == 2


def test_help_shows_an_example_for_each_use() -> None:
    done = calibrate("--help")
    assert done.returncode == 0
    for flag in (
        "bytes",
        "chunk_bytes",
        "queue_depth",
        "path",
        "device",
        "sweep",
        "output",
        "samples",
        "seed",
        "commit",
    ):
        assert done.stdout.count(f"--{flag}") >= 2, flag
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "code", "stdout", "stderr"),
    [
        (["--version"], 0, "coldsnap 0.", ""),
        (["--help"], 0, "usage: ", ""),
        (["calibrat"], 2, "", "coldsnap: run 'calibrat': no such command"),
        ([], 2, "", "coldsnap: run: no command was given"),
    ],
)
def test_the_command_line(arguments: list[str], code: int, stdout: str, stderr: str) -> None:
    command = [sys.executable, "-m", "coldsnap.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert done.stdout.startswith(stdout)
    assert done.stderr.startswith(stderr)
    assert len(done.stderr.splitlines()) == (1 if stderr else 0)
