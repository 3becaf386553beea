"""Captures into a store that are killed at a system call: the store is as before, or has the new artifact, whole."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import coldsnap
from coldsnap import Store
from tests.capture import helpers

IDENTITY = {"model": "killed"}
# Kills itself at the nth call of a function of os, before or after the call itself.
PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    import coldsnap

    store, call, nth, when = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    real = getattr(os, call)

    def dies(*arguments, **more):
        global nth
        nth -= 1
        if nth == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **more)
        if nth == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(os, call, dies)
    coldsnap.capture({"w": np.full(1 << 20, 2.0)}, store=store, identity={"model": "killed"}, replace=True)
    sys.exit("it was not killed")
    """
)


def value_of(artifact: coldsnap.Artifact) -> float:
    found = helpers.destinations(artifact)
    coldsnap.hydrate(artifact, found)
    return float(found["w"][-1])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("call", "nth"),
    [
        *(("mkdir", 1), ("posix_fallocate", 1), ("pwrite", 1), ("pwrite", 3), ("fchmod", 1)),
        *(("fsync", 1), ("fsync", 3), ("fsync", 4)),  # the blob, the manifest, the shard's folder
        *(("pwrite", 6), ("fsync", 5), ("rename", 1), ("fsync", 6)),  # `current`, and the folder around it
    ],
)
def test_killed_at(call: str, nth: int, when: str, tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    coldsnap.capture({"w": np.full(1 << 20, 1.0)}, store=store, identity=IDENTITY)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), call, str(nth), when]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr

    entries = store.ls()
    assert [entry.problem for entry in entries] == [""] * len(entries)
    assert [coldsnap.verify(entry.path).ok for entry in entries] == [True] * len(entries)
    moved = (call, nth, when) in {("rename", 1, "after"), ("fsync", 6, "before"), ("fsync", 6, "after")}
    with store.open(IDENTITY) as artifact:
        assert value_of(artifact) == (2.0 if moved else 1.0)

    receipt = coldsnap.capture({"w": np.full(1 << 20, 2.0)}, store=store, identity=IDENTITY, replace=True)
    assert ("already_present" in helpers.codes(receipt)) == (len(entries) == 2)
    with store.open(IDENTITY) as artifact:
        assert value_of(artifact) == 2.0
    assert helpers.names_in(tmp_path / ".incoming") == []
    left = {path.name for path in store.folder_of(IDENTITY).iterdir()}
    assert left == {"current", *(entry.artifact_root for entry in store.ls())}
