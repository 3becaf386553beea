"""A second opinion: libfiu fails calls of the finished extension module from outside, which knows nothing of it.

``fiu-run`` (Debian: fiu-utils) preloads stand-ins for the C library's functions into a Python that restores again and
again. Whatever fails, each restore ends with every byte right or with a coldsnap error and destinations that are
wholly poisoned or untouched.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import coldsnap
from coldsnap import _native
from coldsnap.tensors import native_specs

RUNS = 200
FIU_RUN = shutil.which("fiu-run")
PROGRAM = pathlib.Path(__file__).with_name("fiu_restores.py")

# What fails, with which probability, and whether buffered restores have to succeed all the same.
POINTS = [
    ("posix/io/rw/pread", 0.02, False),
    ("posix/io/rw/pread/reduce", 0.3, True),
    ("posix/mm/mmap", 0.2, False),
    ("posix/mm/munmap", 0.2, True),
    ("posix/mm/madvise", 0.5, True),
]


@pytest.mark.skipif(FIU_RUN is None, reason="fiu-run is not installed; on Debian: apt install fiu-utils")
@pytest.mark.parametrize(("point", "probability", "tolerated"), POINTS)
@pytest.mark.parametrize("backend", ["buffered", "direct", "auto"])
def test_restores_end_well(
    tmp_path: pathlib.Path, backend: str, point: str, probability: float, tolerated: bool
) -> None:
    assert FIU_RUN is not None
    path = tmp_path / "artifact"
    random = np.random.default_rng(7)
    tensors = {name: random.integers(0, 256, nbytes, np.uint8) for name, nbytes in [("a", 200_000), ("b", 100)]}
    _native.write_artifact(str(path), native_specs(tensors), "{}", "{}", "{}")
    try:
        coldsnap.hydrate(path, {name: np.zeros_like(tensor) for name, tensor in tensors.items()}, backend=backend)
    except coldsnap.RouteUnavailableError as error:
        pytest.skip(str(error))
    command = [FIU_RUN, "-x", "-f", str(tmp_path / "fiu-ctrl"), sys.executable, str(PROGRAM)]
    command += [str(path), backend, str(RUNS), point, str(probability)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    print(f"{point} at {probability} over {backend}: {result}")
    assert result["wrong"] == []
    assert result["fired"] > 0, "libfiu reached none of the module's calls"
    assert result["failed"] + result["succeeded"] == RUNS
    assert result["descriptors_after"] == result["descriptors_before"]
    if tolerated and backend == "buffered":
        assert result["failed"] == 0, result["messages"]
