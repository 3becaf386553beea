"""The working folder: gone when its block ends, removed by the next run only if its process is gone for certain."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from coldsnap._bench import workspace

DEAD = "coldsnap-calibrate.4194304999.1"  # above the kernel's largest process number


def test_the_folder_is_ours_alone_and_goes_with_its_block(tmp_path: Path) -> None:
    with workspace.working_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        sealed = folder / "artifact" / "shard"
        sealed.mkdir(parents=True)
        (sealed / "blob").write_bytes(b"x")
        (sealed / "blob").chmod(0o444)
        sealed.chmod(0o555)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_goes_when_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), workspace.working_folder(tmp_path) as folder:
        (folder / "blob").write_bytes(b"x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_dead_process_left_it(tmp_path: Path) -> None:
    leftover = tmp_path / DEAD
    leftover.mkdir()
    (leftover / "lock").touch()
    assert workspace.remove_leftovers(tmp_path) == [DEAD]


def test_a_live_process_keeps_it(tmp_path: Path) -> None:
    mine = tmp_path / f"coldsnap-calibrate.{os.getpid()}.{workspace._start_time(os.getpid())}"
    mine.mkdir()
    (mine / "lock").touch()
    assert workspace.remove_leftovers(tmp_path) == []
    recycled = tmp_path / f"coldsnap-calibrate.{os.getpid()}.1"  # same number, another process long ago
    recycled.mkdir()
    (recycled / "lock").touch()
    assert workspace.remove_leftovers(tmp_path) == [recycled.name]
    assert mine.is_dir()


def test_a_held_lock_keeps_it_although_the_number_looks_dead(tmp_path: Path) -> None:
    elsewhere = tmp_path / DEAD
    elsewhere.mkdir()
    handle = os.open(elsewhere / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert workspace.remove_leftovers(tmp_path) == []
    os.close(handle)
    assert workspace.remove_leftovers(tmp_path) == [DEAD]


def test_what_is_not_a_leftover_stays(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / DEAD).symlink_to(tmp_path / "target")
    (tmp_path / "coldsnap-calibrate.notes").mkdir()
    (tmp_path / "coldsnap-calibrate.5.txt").touch()
    without_lock = tmp_path / "coldsnap-calibrate.4194304998.1"  # perhaps about to take it
    without_lock.mkdir()
    assert workspace.remove_leftovers(tmp_path) == []
    os.utime(without_lock, (0, 0))
    assert workspace.remove_leftovers(tmp_path) == [without_lock.name]


def test_a_long_native_call_gives_its_result_or_its_error() -> None:
    assert workspace.interruptible(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        workspace.interruptible(lambda: 1 // 0)


def test_a_signal_that_a_destructor_swallowed_comes_again() -> None:
    with workspace.signals_raise():
        workspace.go_on()
        with pytest.raises(workspace.Interrupted):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(workspace.Interrupted, match="SIGTERM"):
            workspace.go_on()
    workspace.go_on()
