"""A blob comes into the page cache where the policy and the memory allow it, and nobody is held up by it."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, settings, tensors
from coldsnap import keep_cached as keep_function

keep_cached = sys.modules["coldsnap.keep_cached"]  # the package has the function under this name
WAIT_S = 60  # far beyond what it takes
ROOM = 1 << 40
COLD = 0.1  # opening an artifact reads its header, and the kernel reads ahead
WARM = 0.95  # a machine short of memory gives pages up at once


def io_class() -> int | None:
    """The calling thread's class; None where the number of ioprio_get is not known here."""
    number = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
    return None if number is None else ctypes.CDLL(None).syscall(number, 1, 0) >> 13


IDLE = 3
IO_CLASS = io_class()  # before any reader


def write(path: pathlib.Path, seed: int) -> pathlib.Path:
    content = np.random.default_rng(seed).integers(0, 256, 20 * settings.MIB + 5, np.uint8)
    _native.write_artifact(str(path), tensors.native_specs({"w": content}), "{}", "{}", "{}")
    return path


def blob_of(path: pathlib.Path) -> pathlib.Path:
    return path / "shard-00-00-00" / "weights.safetensors"


def make_cold(path: pathlib.Path) -> None:
    """Put the blob out of the page cache; skips where files live in it."""
    with blob_of(path).open("rb") as blob:
        os.fsync(blob.fileno())
        os.posix_fadvise(blob.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path) > COLD:
        pytest.skip("the test's folder keeps its files in memory")


def resident(path: pathlib.Path) -> float:
    there, nbytes = _native.residency(str(blob_of(path)))
    return float(there / nbytes)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = write(tmp_path / "artifact", 1)
    make_cold(path)
    return path


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> dict[str, Any]:
    """A machine with room; tests take it away."""
    found = {"memory_headroom_bytes": ROOM, "memory_source": "memory.max", "local_ranks": 1}
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemFree:        1 kB\nMemAvailable:   {ROOM >> 10} kB\n")
    monkeypatch.setattr(_native, "limits", lambda: found)
    monkeypatch.setattr(keep_cached, "_MEMINFO", meminfo)
    return found


def keep(path: pathlib.Path, policy: str = "") -> coldsnap.KeepCached:
    with coldsnap.open(path) as artifact:  # closed while the reader runs
        return keep_function(artifact, {"COLDSNAP_KEEP_CACHED": policy})


@pytest.mark.parametrize("policy", ["yes", "auto", ""])
def test_a_cold_blob_comes_in(path: pathlib.Path, limits: dict[str, Any], policy: str) -> None:
    kept = keep(path, policy)
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached"
    assert f" of {blob_of(path).stat().st_size} bytes" in kept.reason["detail"]
    assert resident(path) > WARM
    assert kept.setting.value == (policy or "auto")
    assert kept.setting.source == ("environment" if policy else "default")


def test_no_means_no(path: pathlib.Path, limits: dict[str, Any]) -> None:
    kept = keep(path, "no")
    assert kept.wait(0)
    kept.stop()
    assert kept.reason == {"code": "keep_cached_off", "detail": "COLDSNAP_KEEP_CACHED is no"}
    assert resident(path) < COLD


def test_an_unknown_policy_is_refused_with_the_known_ones(path: pathlib.Path) -> None:
    with pytest.raises(coldsnap.RequestInvalidError, match=r"COLDSNAP_KEEP_CACHED: 'always'.*auto, yes, no"):
        keep(path, "always")


def test_what_is_there_needs_no_reader(path: pathlib.Path, limits: dict[str, Any]) -> None:
    blob_of(path).read_bytes()
    assert keep(path).reason["code"] == "keep_cached_resident"
    kept = keep(path, "yes")
    assert kept.wait(WAIT_S)
    assert kept.reason["detail"].startswith("0 of")


def test_only_what_is_missing_is_read(path: pathlib.Path, limits: dict[str, Any]) -> None:
    with blob_of(path).open("rb") as blob:
        os.posix_fadvise(blob.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # else the kernel reads ahead into the next piece
        blob.read(keep_cached.PIECE_BYTES)
    kept = keep(path)
    assert kept.wait(WAIT_S)
    missing = blob_of(path).stat().st_size - keep_cached.PIECE_BYTES
    assert kept.reason["detail"].startswith(f"{missing} of")
    assert resident(path) > WARM


def take_cgroup(limits: dict[str, Any], nbytes: int) -> None:
    limits["memory_headroom_bytes"] = nbytes


def take_machine(limits: dict[str, Any], nbytes: int) -> None:
    limits["memory_headroom_bytes"] = None
    keep_cached._MEMINFO.write_text(f"MemAvailable:   {nbytes >> 10} kB\n")


def take_by_ranks(limits: dict[str, Any], nbytes: int) -> None:
    limits["memory_headroom_bytes"], limits["local_ranks"] = 2 * nbytes, 2


@pytest.mark.parametrize(
    ("take", "said"),
    [(take_cgroup, "memory.max"), (take_machine, "meminfo"), (take_by_ranks, "divided by 2 local ranks")],
)
def test_half_of_what_is_available_is_the_most(
    path: pathlib.Path, limits: dict[str, Any], take: Callable[[dict[str, Any], int], None], said: str
) -> None:
    just_enough = 2 * blob_of(path).stat().st_size
    take(limits, just_enough - settings.KIB)
    kept = keep(path)
    assert kept.wait(0)
    assert kept.reason["code"] == "keep_cached_no_room"
    assert said in kept.reason["detail"]
    assert resident(path) < COLD
    take(limits, just_enough)
    assert keep(path).reason["code"] == "keep_cached"


def test_where_nobody_knows_the_memory_nothing_is_read(path: pathlib.Path, limits: dict[str, Any]) -> None:
    limits["memory_headroom_bytes"] = None
    keep_cached._MEMINFO.unlink()
    assert keep(path).reason["code"] == "keep_cached_no_room"
    kept = keep(path, "yes")  # asks nobody
    assert kept.wait(WAIT_S)
    assert resident(path) > WARM


class Gate:
    """Holds the reader before each piece until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived, self.opened = threading.Event(), threading.Event()
        self.pieces = 0
        self._read = keep_cached._read
        monkeypatch.setattr(keep_cached, "_read", self.read)

    def read(self, *piece: Any) -> None:
        self.arrived.set()
        self.opened.wait(WAIT_S)
        self.pieces += 1
        self._read(*piece)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def test_room_that_goes_away_ends_it(
    path: pathlib.Path, limits: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_cached, "_LOOK_BYTES", 1)
    kept = keep(path)
    assert gate.arrived.wait(WAIT_S)
    limits["memory_headroom_bytes"] = 1000
    gate.opened.set()
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached_no_room"
    assert f"stopped after {keep_cached.PIECE_BYTES} bytes" in kept.reason["detail"]
    assert gate.pieces == 1


def test_stop_ends_it_after_the_piece(path: pathlib.Path, limits: dict[str, Any], gate: Gate) -> None:
    kept = keep(path, "yes")
    assert gate.arrived.wait(WAIT_S)
    assert not kept.wait(0)
    kept._stop.set()  # what stop() does before it waits, which the gate would hold up
    gate.opened.set()
    kept.stop()
    assert kept.wait(0)
    assert gate.pieces == 1
    assert kept.reason["code"] == "keep_cached_stopped"
    assert f"after {keep_cached.PIECE_BYTES} of" in kept.reason["detail"]


def test_a_stop_is_heard_while_it_rests(
    path: pathlib.Path, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_cached.time, "monotonic", iter(range(0, 10**6, 10**4)).__next__)
    monkeypatch.setattr(keep_cached, "_LONGEST_REST_S", 10**6)
    kept = keep(path, "yes")
    kept.stop()
    assert kept.reason["code"] == "keep_cached_stopped"


def test_for_who_waits_it_neither_rests_nor_stands_back(
    path: pathlib.Path, limits: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.opened.set()
    monkeypatch.setattr(keep_cached.time, "monotonic", iter(range(0, 10**6, 10**4)).__next__)
    monkeypatch.setattr(keep_cached, "_LONGEST_REST_S", 10**6)
    monkeypatch.setattr(keep_cached, "_enter_idle_class", lambda: pytest.fail("the thread stood back"))
    with coldsnap.open(path) as artifact:
        kept = keep_function(artifact, {}, soon=True)
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached"
    assert resident(path) > WARM
    nbytes = blob_of(path).stat().st_size
    assert (
        gate.pieces == 1 < nbytes // keep_cached.PIECE_BYTES < keep_cached.SOON_PIECE_BYTES // keep_cached.PIECE_BYTES
    )


def test_a_forked_child_has_no_reader_and_waits_for_none(
    path: pathlib.Path, limits: dict[str, Any], gate: Gate
) -> None:
    kept = keep(path, "yes")
    assert gate.arrived.wait(WAIT_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: fork beside a thread
        child = os.fork()
    if child == 0:
        signal.alarm(WAIT_S)
        ended = kept.wait()
        kept.stop()
        os._exit(7 if ended and kept.reason["code"] == "keep_cached" and not kept._stop.is_set() else 8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    gate.opened.set()
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached"
    assert resident(path) > WARM


def test_a_file_put_in_its_place_is_left_alone(
    path: pathlib.Path, limits: dict[str, Any], gate: Gate, tmp_path: pathlib.Path
) -> None:
    other = write(tmp_path / "other", 2)
    make_cold(other)
    kept = keep(path, "yes")
    assert gate.arrived.wait(WAIT_S)
    blob_of(path).rename(tmp_path / "old")
    blob_of(other).rename(blob_of(path))
    gate.opened.set()
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached"
    there, nbytes = _native.residency(str(tmp_path / "old"))
    assert there > WARM * nbytes
    assert resident(path) < COLD


def test_a_file_that_ends_early_is_said(path: pathlib.Path, limits: dict[str, Any], gate: Gate) -> None:
    kept = keep(path, "yes")
    assert gate.arrived.wait(WAIT_S)
    blob_of(path).chmod(0o644)
    os.truncate(blob_of(path), 12345)
    gate.opened.set()
    assert kept.wait(WAIT_S)
    assert kept.reason["code"] == "keep_cached_failed"
    assert "ends after 12345 bytes" in kept.reason["detail"]


def test_its_reads_are_idle_and_nobody_else_s_are() -> None:
    if IO_CLASS is None or IO_CLASS == IDLE:
        pytest.skip(f"the I/O class of this process is {IO_CLASS}: unknown, or idle by itself")
    seen: list[object] = []

    def work() -> None:
        seen.extend([keep_cached._enter_idle_class(), io_class()])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, IDLE]
    assert io_class() == IO_CLASS


# The callback that is registered first is called last.
_ENDS = """
import atexit, sys, threading
import coldsnap
keep_cached = sys.modules["coldsnap.keep_cached"]
atexit.register(lambda: print(kept.wait(0), kept.reason["code"]))
known = threading.Event()
keep_cached._is_resident = lambda native, offset, nbytes: False
keep_cached._read = lambda *piece: known.wait() and kept._stop.wait()
kept = coldsnap.keep_cached(coldsnap.open(sys.argv[1]), {"COLDSNAP_KEEP_CACHED": "yes"})
known.set()
"""


def test_a_process_that_ends_meanwhile_ends_the_reader_first(path: pathlib.Path) -> None:
    child = subprocess.run([sys.executable, "-c", _ENDS, str(path)], capture_output=True, text=True, timeout=WAIT_S)
    assert (child.returncode, child.stdout, child.stderr) == (0, "True keep_cached_stopped\n", "")
