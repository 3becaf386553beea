"""The file systems of docs/filesystems.md, each made for one test on top of files or memory."""

from __future__ import annotations

import pathlib
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.trust.file_systems import MIB, Image, mount, overlay, own_mounts
from tests.trust.place import Place, run, run_or_skip

_MOUNTED_WITHIN_S = 20  # far beyond what it takes


class Made(NamedTuple):
    """A file system that is mounted.

    Attributes:
        on: An empty folder of it.
        below: The same folder as it is reached past a FUSE file system; elsewhere ``on`` again.
    """

    on: pathlib.Path
    below: pathlib.Path


class System(NamedTuple):
    """One row: ``make`` mounts it until the place unwinds; skips, with the reason, where the machine refuses."""

    name: str
    make: Callable[[Place], Made]


def folder_of(mounted: pathlib.Path) -> pathlib.Path:
    """An empty folder: the top of a file system may have a `lost+found`."""
    folder = mounted / "folder"
    folder.mkdir()
    return folder


def image(kind: str) -> Callable[[Place], Made]:
    """On a loop device."""

    def make(at: Place) -> Made:
        folder = folder_of(Image(at, kind).on)
        return Made(folder, folder)

    return make


def in_memory(kind: str) -> Callable[[Place], Made]:
    """A tmpfs has a size; a ramfs can have none."""
    options = ("-o", f"size={64 * MIB}") if kind == "tmpfs" else ()

    def make(at: Place) -> Made:
        folder = folder_of(mount(at, at.folder / kind, "-t", kind, *options, kind))
        return Made(folder, folder)

    return make


def overlay_over(make: Callable[[Place], Made]) -> Callable[[Place], Made]:
    """Both layers in another file system."""

    def make_overlay(at: Place) -> Made:
        layers = make(at).on
        (layers / "lower").mkdir()
        folder = folder_of(overlay(at, layers / "lower", at.folder / "overlay", layers / "upper"))
        return Made(folder, folder)

    return make_overlay


def fuse_over(make: Callable[[Place], Made], *options: str) -> Callable[[Place], Made]:
    """A passthrough by a process, bindfs, which ends with this one."""

    def make_fuse(at: Place) -> Made:
        below, on = make(at).on, at.folder / "fuse"
        own_mounts()
        run_or_skip("bindfs", "--version")
        on.mkdir()
        words = ("setpriv", "--pdeathsig", "KILL", "bindfs", "-f", *options, str(below), str(on))
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        at.unwind.callback(server.wait)
        at.unwind.callback(lambda: on.is_mount() and run("umount", "--lazy", str(on)))
        until = time.monotonic() + _MOUNTED_WITHIN_S
        while not on.is_mount():
            if server.poll() is not None and server.stderr is not None:
                pytest.skip(f"bindfs: {server.stderr.read().strip()}")
            assert time.monotonic() < until, f"bindfs has not mounted {on} within {_MOUNTED_WITHIN_S} s"
            time.sleep(0.01)
        return Made(on, below)

    return make_fuse


SYSTEMS = (
    System("ext4", image("ext4")),
    System("xfs", image("xfs")),
    System("btrfs", image("btrfs")),
    System("tmpfs", in_memory("tmpfs")),
    System("ramfs", in_memory("ramfs")),
    System("overlay, its layers in ext4", overlay_over(image("ext4"))),
    System("overlay, its layers in tmpfs", overlay_over(in_memory("tmpfs"))),
    System("FUSE over ext4, O_DIRECT left out", fuse_over(image("ext4"))),
    System("FUSE over ramfs, O_DIRECT passed on", fuse_over(in_memory("ramfs"), "--forward-odirect=4096")),
)
