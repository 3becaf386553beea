"""Explicit routes work or say why not, and receipts say where bytes really came from."""

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

import coldsnap
from tests.api import helpers
from tests.api.helpers import UNTOUCHED

_MOUNT = 'mount -t ramfs ramfs "$1" || exit 77; shift; exec "$@"'


def restored_in_ramfs(folder: str) -> None:
    """Runs in a mount namespace of its own, where ``folder`` is a ramfs: it has no direct I/O at all."""
    path = pathlib.Path(folder)
    assert helpers.why_no_direct(path) is not None
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(path / "artifact", tensors)

    destinations = helpers.untouched_like(tensors)
    try:
        coldsnap.hydrate(artifact, destinations, backend="direct")
    except coldsnap.RouteUnavailableError as error:
        assert helpers.every_byte_is(destinations, UNTOUCHED)
        assert error.receipt is not None
        assert error.receipt.error is not None
        assert error.receipt.error["code"] == "route_unavailable"
        print(f"refused: {error}")
    else:
        raise AssertionError("direct worked in a ramfs")

    for backend in ("buffered", "auto", "python"):
        destinations = helpers.untouched_like(tensors)
        receipt = coldsnap.hydrate(artifact, destinations, backend=backend)
        helpers.assert_same_bytes(destinations, tensors)
        routes = {route["route"] for route in receipt.routes}
        assert routes == {"python" if backend == "python" else "buffered"}, receipt
        print(f"{backend}: {helpers.codes(receipt)}")


def test_a_file_system_without_direct_io(tmp_path: pathlib.Path) -> None:
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(tmp_path)]
    probe = subprocess.run([*namespace, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"mount a ramfs in a namespace of our own: {probe.stderr.strip()}")
    body = "import sys; from tests.api import routes_test; routes_test.restored_in_ramfs(sys.argv[1])"
    child = subprocess.run(
        [*namespace, sys.executable, "-c", body, str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert child.returncode == 0, child.stderr
    refusal = next(line for line in child.stdout.splitlines() if line.startswith("refused: "))
    assert "direct" in refusal
    assert "; " in refusal  # with a remedy


@pytest.fixture
def tmpfs() -> Iterator[pathlib.Path]:
    folder = pathlib.Path("/dev/shm")
    kinds = {line.split()[1]: line.split()[2] for line in pathlib.Path("/proc/mounts").read_text().splitlines()}
    if kinds.get(str(folder)) != "tmpfs" or not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} is no tmpfs that this process may write")
    with tempfile.TemporaryDirectory(dir=folder, prefix="coldsnap-test-") as path:
        yield pathlib.Path(path)


def test_direct_reads_that_memory_serves_are_called_so(tmpfs: pathlib.Path) -> None:
    if why := helpers.why_no_direct(tmpfs):
        pytest.skip(f"tmpfs takes direct reads since Linux 6.6, and here: {why}")
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmpfs / "artifact", tensors)
    destinations = helpers.untouched_like(tensors)
    receipt = coldsnap.hydrate(artifact, destinations, backend="direct")
    helpers.assert_same_bytes(destinations, tensors)
    assert [route["route"] for route in receipt.routes] == ["direct"]
    assert "direct_served_from_memory" in helpers.codes(receipt)
    assert receipt.residency == {"before": 1.0, "after": 1.0}


def test_direct_reads_of_a_disk_are_not_called_so(tmp_path: pathlib.Path) -> None:
    helpers.needs("direct", tmp_path)
    tensors = helpers.mixed_tensors()
    artifact = helpers.write(tmp_path / "artifact", tensors)
    if coldsnap.open(artifact).native.blob_memory_backed():
        pytest.skip("the test's folder is memory itself")
    receipt = coldsnap.hydrate(artifact, helpers.untouched_like(tensors), backend="direct")
    assert helpers.codes(receipt) == ["explicit"]


def test_gds_needs_an_admitted_artifact(tmp_path: pathlib.Path) -> None:
    tensors = {"w": helpers.random_bytes(1000)}
    destinations = helpers.untouched_like(tensors)
    with pytest.raises(coldsnap.NotAdmittedError, match="never pass host memory"):
        coldsnap.hydrate(helpers.write(tmp_path / "artifact", tensors), destinations, backend="gds")
    assert helpers.every_byte_is(destinations, UNTOUCHED)
