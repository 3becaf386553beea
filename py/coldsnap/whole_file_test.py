"""A file appears whole or not at all: killed in the middle, with names in the way, on file systems that lack the means."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import errors, packing, whole_file

# Packs `artifact` as `a.tar`, says so once bytes are on their way, and waits there for a byte.
_PACK = """
import pathlib, sys
from coldsnap import packing, whole_file
if sys.argv[1] == "named":
    whole_file._unnamed = lambda folder: None
def progress(done, total):
    if not done < total:
        return
    print("half", flush=True)
    sys.stdin.read(1)
packing.pack(pathlib.Path("artifact"), pathlib.Path("a.tar"), progress)
print("done", flush=True)
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    coldsnap.capture({"w": np.arange(500_000, dtype=np.float32)}, tmp_path / "artifact")
    return tmp_path


def others(folder: pathlib.Path) -> list[str]:
    """What lies in the folder beside the artifact."""
    return sorted(path.name for path in folder.iterdir() if path.name != "artifact")


def half_packed(folder: pathlib.Path, how: str) -> subprocess.Popen[str]:
    """A process in the middle of packing."""
    child = subprocess.Popen(
        [sys.executable, "-c", _PACK, how], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "half\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    with child:
        assert child.wait(60) == -signal.SIGKILL


def require_unnamed(folder: pathlib.Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        unnamed = whole_file._unnamed(fd)
    finally:
        os.close(fd)
    if unnamed is None:
        pytest.skip(f"the file system of {folder} has no files without a name")
    os.close(unnamed)


def test_killed_in_the_middle_it_leaves_nothing(folder: pathlib.Path) -> None:
    require_unnamed(folder)
    kill(half_packed(folder, "unnamed"))
    assert others(folder) == []


def test_where_it_needs_a_name_the_next_one_removes_it(folder: pathlib.Path) -> None:
    kill(half_packed(folder, "named"))
    [part] = others(folder)
    assert part.startswith(".a.tar.")
    (folder / ".a.tar.mine").write_text("no name of ours")
    packing.pack(folder / "artifact", folder / "b.tar")
    assert others(folder) == [".a.tar.mine", "b.tar"]


@pytest.mark.parametrize("how", ["named", "unnamed"])
def test_one_that_is_under_way_is_left_alone(how: str, folder: pathlib.Path) -> None:
    with half_packed(folder, how) as child:
        before = others(folder)
        packing.pack(folder / "artifact", folder / "b.tar")
        assert others(folder) == sorted([*before, "b.tar"])
        out, _ = child.communicate("...", timeout=60)
    assert (child.returncode, out.splitlines()[-1]) == (0, "done")
    assert others(folder) == ["a.tar", "b.tar"]
    assert (folder / "a.tar").read_bytes() == (folder / "b.tar").read_bytes()


@pytest.mark.parametrize("unnamed", [True, False])
def test_what_got_the_name_meanwhile_stays(
    unnamed: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.setattr(whole_file, "_unnamed", lambda folder: None)
    with pytest.raises(errors.ExistsError, match=r"a\.tar"), whole_file.appearing(tmp_path / "a.tar") as stream:
        stream.write(b"new")
        (tmp_path / "a.tar").write_bytes(b"old")
    assert (tmp_path / "a.tar").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EIO])
def test_only_a_file_system_without_the_means_gets_a_name(
    number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, refused = os.open, []

    def without(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", without)
    try:
        with whole_file.appearing(tmp_path / "a") as stream:
            stream.write(b"x")
            assert len(list(tmp_path.iterdir())) == 1
    except errors.IoError:
        assert number == errno.EIO
        assert list(tmp_path.iterdir()) == []
    else:
        assert number != errno.EIO
        assert (tmp_path / "a").read_bytes() == b"x"
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert refused == ["."]


def test_the_mode_is_the_user_s(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file.appearing(tmp_path / "a") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_one_that_was_taken_for_dead_before_it_was_locked_is_made_anew(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, cleaners = fcntl.flock, []

    def removed(part: pathlib.Path, fd: int) -> None:
        time.sleep(0.1)
        part.unlink()
        os.close(fd)

    def late(fd: int, operation: int) -> None:
        if not cleaners:  # somebody was faster, and has it open and locked
            [part] = tmp_path.iterdir()
            other = os.open(part, os.O_RDWR)
            locked(other, fcntl.LOCK_EX)
            cleaners.append(threading.Thread(target=removed, args=(part, other)))
            cleaners[0].start()
        locked(fd, operation)

    monkeypatch.setattr(whole_file, "_unnamed", lambda folder: None)
    monkeypatch.setattr(fcntl, "flock", late)
    with whole_file.appearing(tmp_path / "a") as stream:
        cleaners[0].join()
        stream.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
