"""A file system that is nearly full: a capture that has no room says so, leaves nothing, and a smaller one works."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest

import coldsnap
from tests.api import helpers
from tests.filesystems.systems import System, fuse_over, image, in_memory, overlay_over
from tests.trust.file_systems import MIB
from tests.trust.place import Place

LEFT_BYTES, TOO_MUCH_BYTES = 4 * MIB, 24 * MIB
SYSTEMS = (
    System("ext4", image("ext4")),
    System("xfs", image("xfs")),
    System("btrfs", image("btrfs")),
    System("tmpfs", in_memory("tmpfs")),
    System("overlay", overlay_over(image("ext4"))),
    System("fuse", fuse_over(in_memory("tmpfs"))),
)


def free_bytes(folder: pathlib.Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def fill(folder: pathlib.Path) -> None:
    """Leave about `LEFT_BYTES`; what a file system then still gives for its own tables is far below `TOO_MUCH_BYTES`."""
    with (folder / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(folder) - LEFT_BYTES)


@pytest.mark.parametrize("backend", helpers.BACKENDS)
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_no_room(system: System, backend: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"w": helpers.random_bytes(TOO_MUCH_BYTES)}
    with contextlib.ExitStack() as unwind:
        made = system.make(Place(tmp_path, monkeypatch, unwind))
        helpers.needs(backend, made.on)  # a tmpfs has direct I/O since Linux 6.6
        fill(made.below)
        with pytest.raises(coldsnap.NoSpaceError) as raised:
            coldsnap.capture(tensors, made.on / "artifact", backend=backend)
        print(raised.value)
        assert [path.name for path in made.on.iterdir()] == ["ballast"]
        smaller = {"w": helpers.random_bytes(MIB)}
        coldsnap.capture(smaller, made.below / "artifact", backend=backend)
        found = helpers.untouched_like(smaller)
        coldsnap.hydrate(made.on / "artifact", found, backend=backend, verify="crc32+sha256")
        helpers.assert_same_bytes(found, smaller)
