"""Failures of the machine and of its users that no other test here shows: docs/failures.md has the whole list."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import BACKENDS, KIB, MIB, SMALL_RING, UNTOUCHED

HANGS_AFTER_S = 60  # far beyond what a child takes
RING_OF_64_MIB = {"chunk_bytes": 4 * MIB, "queue_depth": 16}
BLOB = "weights.safetensors"


def replace_blob(artifact: pathlib.Path, tensors: helpers.Tensors) -> None:
    """Rename the blob of an artifact with the same layout and other bytes over this one's."""
    other = helpers.write(artifact.with_name("other"), helpers.untouched_like(tensors))
    helpers.file_of(other, BLOB).rename(helpers.file_of(artifact, BLOB))


def make_cold(artifact: coldsnap.Artifact) -> None:
    """Put the blob out of the page cache; skips where files live in it."""
    os.fsync(artifact.native.blob_fd)
    os.posix_fadvise(artifact.native.blob_fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if artifact.native.residency() > 0.1:
        pytest.skip("the test's folder keeps its files in memory")


@pytest.mark.parametrize("backend", ["python", "buffered", "auto"])
def test_a_blob_replaced_after_opening_is_not_read(tmp_path: pathlib.Path, backend: str) -> None:
    tensors = helpers.mixed_tensors()
    path = helpers.write(tmp_path / "artifact", tensors)
    with coldsnap.open(path) as artifact:
        replace_blob(path, tensors)
        destinations = helpers.untouched_like(tensors)
        coldsnap.hydrate(artifact, destinations, backend=backend)
        helpers.assert_same_bytes(destinations, tensors)
    with pytest.raises(coldsnap.DataLossError):  # whoever opens it now reads the new file, and sees that it is wrong
        coldsnap.hydrate(path, destinations, backend=backend)


@pytest.mark.parametrize("backend", ["direct", "auto"])
def test_direct_reads_notice_a_replaced_blob(tmp_path: pathlib.Path, backend: str) -> None:
    helpers.needs("direct", tmp_path)
    tensors = {"w": helpers.random_bytes(8 * MIB)}
    path = helpers.write(tmp_path / "artifact", tensors)
    with coldsnap.open(path) as artifact:
        make_cold(artifact)
        replace_blob(path, tensors)
        destinations = helpers.untouched_like(tensors)
        with pytest.raises(coldsnap.DataLossError, match="it was replaced since it was checked") as caught:
            coldsnap.hydrate(artifact, destinations, backend=backend)
    assert caught.value.stage == "file"
    assert helpers.every_byte_is(destinations, UNTOUCHED)


# The same of the native core, which is over before its first tick: RestoreContract.ABlobReplacedMeanwhileIsNotRead.
def test_a_blob_replaced_during_the_restore_is_not_read(tmp_path: pathlib.Path) -> None:
    tensors = {"w": helpers.random_bytes(MIB + 5)}
    path = helpers.write(tmp_path / "artifact", tensors)
    replaced_at: list[int] = []

    def progress(done: int, total: int) -> None:
        if not replaced_at:
            replace_blob(path, tensors)
            replaced_at.append(done)

    destinations = helpers.untouched_like(tensors)
    coldsnap.hydrate(path, destinations, backend="python", progress=progress, chunk_bytes=64 * KIB)
    assert replaced_at[0] < tensors["w"].nbytes
    helpers.assert_same_bytes(destinations, tensors)


@pytest.mark.parametrize("misplaced", [1, 3, 511, 4097])
@pytest.mark.parametrize("backend", BACKENDS)
def test_destinations_at_odd_addresses(tmp_path: pathlib.Path, backend: str, misplaced: int) -> None:
    helpers.needs(backend, tmp_path)
    tensors = {
        "large": helpers.random_bytes(4 * 50_001, 1).view(np.float32),
        "small": helpers.random_bytes(8 * 63, 2).view(np.int64),
    }
    path = helpers.write(tmp_path / "artifact", tensors)
    around, destinations = {}, {}
    for name, tensor in tensors.items():
        around[name] = np.full(tensor.nbytes + 16 * KIB, UNTOUCHED, np.uint8)
        begin = -around[name].ctypes.data % 4096 + misplaced
        destinations[name] = np.ndarray(tensor.shape, tensor.dtype, around[name], begin)
        assert destinations[name].ctypes.data % 4096 == misplaced % 4096
    coldsnap.hydrate(path, destinations, backend=backend, **SMALL_RING)
    helpers.assert_same_bytes(destinations, tensors)
    for name, tensor in tensors.items():
        begin = destinations[name].ctypes.data - around[name].ctypes.data
        beside = np.delete(around[name], slice(begin, begin + tensor.nbytes))
        assert (beside == UNTOUCHED).all(), name


def test_a_forked_child_needs_a_hydrator_of_its_own(tmp_path: pathlib.Path) -> None:
    tensors = {"w": helpers.random_bytes(MIB + 5)}
    path = helpers.write(tmp_path / "artifact", tensors)

    def child() -> int:
        destinations = helpers.untouched_like(tensors)
        with pytest.raises(coldsnap.PolicyRefusedError, match=r"was forked from process .*; make a hydrator in the"):
            hydrator.hydrate(path, destinations)
        assert helpers.every_byte_is(destinations, UNTOUCHED)
        with coldsnap.Hydrator(backend="buffered", **SMALL_RING) as own:
            own.hydrate(path, destinations)
        helpers.assert_same_bytes(destinations, tensors)
        return 7

    with coldsnap.Hydrator(backend="buffered", **SMALL_RING) as hydrator:
        for _ in range(2):  # the parent goes on as before
            destinations = helpers.untouched_like(tensors)
            hydrator.hydrate(path, destinations)
            helpers.assert_same_bytes(destinations, tensors)
            assert exit_code_of_fork(child) == 7


def exit_code_of_fork(child: Callable[[], int]) -> int:
    """Run ``child`` in a forked process, and give the number that it returns; 8 where it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: fork beside threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS_AFTER_S)
        code = 8
        try:
            code = child()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_pinned_memory_without_room_for_a_ring(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_PINNED_MAX_BYTES", "64KiB")
    tensors = {"w": helpers.random_bytes(MIB)}
    path = helpers.write(tmp_path / "artifact", tensors)
    destinations = helpers.untouched_like(tensors)
    with pytest.raises(coldsnap.RequestInvalidError) as caught:
        coldsnap.hydrate(path, destinations, backend="buffered")
    assert "2 x 196608 = 393216 bytes" in caught.value.message
    assert "the cap on pinned memory, 65536 bytes" in caught.value.message
    assert caught.value.remedy == "lower queue_depth or chunk_bytes, or raise COLDSNAP_PINNED_MAX_BYTES"
    assert helpers.every_byte_is(destinations, UNTOUCHED)


def in_a_process_of_its_own(what: str, artifact: pathlib.Path) -> str:
    """Run a function of this module in a new process, since limits can't be raised again; what it printed."""
    program = f"import sys, pathlib; from tests.api import failures_test as t; t.{what}(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(artifact)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def limit(kind: int, nbytes: int) -> None:
    resource.setrlimit(kind, (nbytes, nbytes))


def mapped_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def restored_with_64_kib_of_locked_memory(artifact: pathlib.Path) -> None:
    expected, destination = helpers.random_bytes(64 * MIB), np.full(64 * MIB, UNTOUCHED, np.uint8)
    limit(resource.RLIMIT_MEMLOCK, 64 * KIB)
    receipt = coldsnap.hydrate(artifact, {"w": destination}, backend="buffered")
    assert destination.data == expected.data
    assert "ring_shrunk" not in helpers.codes(receipt)


def restored_with_half_a_ring(artifact: pathlib.Path) -> None:
    expected, destination = helpers.random_bytes(64 * MIB), np.full(64 * MIB, UNTOUCHED, np.uint8)
    with coldsnap.open(artifact) as opened:
        limit(resource.RLIMIT_AS, mapped_bytes() + 56 * MIB)
        receipt = coldsnap.hydrate(opened, {"w": destination}, backend="buffered", read_threads=1, **RING_OF_64_MIB)
    assert destination.data == expected.data
    assert receipt.settings["queue_depth"] == {"value": 8, "source": "explicit"}
    print(next(reason["detail"] for reason in receipt.reasons if reason["code"] == "ring_shrunk"))


def refused_without_room_for_one_slot(artifact: pathlib.Path) -> None:
    destination = np.full(64 * MIB, UNTOUCHED, np.uint8)
    with coldsnap.open(artifact) as opened:
        limit(resource.RLIMIT_AS, mapped_bytes() + 5 * MIB)
        with pytest.raises(coldsnap.OutOfMemoryError) as caught:
            coldsnap.hydrate(opened, {"w": destination}, backend="buffered", read_threads=1, **RING_OF_64_MIB)
    assert caught.value.stage == "ring"
    assert destination.min() == destination.max() == UNTOUCHED
    print(caught.value)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return helpers.write(tmp_path_factory.mktemp("large") / "artifact", {"w": helpers.random_bytes(64 * MIB)})


def test_a_small_limit_of_locked_memory_does_not_matter_to_the_host(large: pathlib.Path) -> None:
    in_a_process_of_its_own("restored_with_64_kib_of_locked_memory", large)


def test_a_ring_for_which_memory_is_short_has_fewer_slots_and_says_so(large: pathlib.Path) -> None:
    said = in_a_process_of_its_own("restored_with_half_a_ring", large)
    assert "16 slots became 8: map 67108864 bytes of host memory: Cannot allocate memory" in said


def test_no_memory_for_one_slot_is_refused_with_a_remedy(large: pathlib.Path) -> None:
    said = in_a_process_of_its_own("refused_without_room_for_one_slot", large)
    assert "map 67108864 bytes of host memory: Cannot allocate memory" in said
    assert "; lower COLDSNAP_HYDRATION_QUEUE_DEPTH or COLDSNAP_HYDRATION_CHUNK_BYTES" in said
