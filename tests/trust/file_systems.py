"""File systems of a case's own: images on loop devices, overlays and bind mounts, which nobody else sees."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import pathlib

import pytest

from tests.trust.place import Place, run, run_or_skip

MIB = 1 << 20
_CLONE_NEWNS, _MS_REC_PRIVATE = 0x20000, 0x44000
_FS_IOC_GETFSUUID = 0x80111500
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-I", "256"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
    "coarse": ("mkfs.ext4", "-q", "-I", "128"),
}
# xfs makes none below 300 MiB; the images are sparse.
_BYTES = {"ext4": 64 * MIB, "xfs": 400 * MIB, "btrfs": 400 * MIB, "coarse": 64 * MIB}


@functools.cache
def own_mounts() -> None:
    """From here on nobody else sees what this process mounts; skips, with the reason, where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_char_p(None)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(none, b"/", none, ctypes.c_ulong(_MS_REC_PRIVATE), none):
        pytest.skip(f"a mount namespace: {os.strerror(ctypes.get_errno())}")


def needs_uuids(at: Place) -> None:
    """Skip where this kernel tells no UUID of a file system: before 6.9."""
    mounted = mount(at, at.folder / "any", "-t", "tmpfs", "any")
    fd = os.open(mounted, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _FS_IOC_GETFSUUID, bytearray(17))
    except OSError as cause:
        pytest.skip(f"this kernel tells no UUID: {cause.strerror}")
    finally:
        os.close(fd)


def mount(at: Place, on: pathlib.Path, *words: str) -> pathlib.Path:
    """``mount WORDS ON``, until the case is over or `unmount` comes; nobody else sees it."""
    own_mounts()
    on.mkdir(exist_ok=True)
    run_or_skip("mount", *words, str(on))
    at.unwind.callback(lambda: on.is_mount() and run("umount", "--lazy", str(on)))
    return on


def unmount(on: pathlib.Path) -> None:
    run("umount", str(on))


def bind(at: Place, source: pathlib.Path, on: pathlib.Path, *, read_only: bool) -> pathlib.Path:
    """Show a folder at a second place."""
    mount(at, on, "--bind", str(source))
    if read_only:
        run("mount", "-o", "remount,bind,ro", str(on))
    return on


def reachable(at: Place) -> None:
    """Go on where every user can come, which a test's own folders don't allow."""
    at.move(bind(at, at.folder, pathlib.Path("/mnt"), read_only=False))
    at.folder.chmod(0o777)


def overlay(
    at: Place, lower: pathlib.Path, on: pathlib.Path, upper: pathlib.Path | None, options: str = ""
) -> pathlib.Path:
    """An overlay over ``lower``, read-only without an ``upper``, which is made, with its work folder beside it."""
    empty = at.folder / "empty"
    empty.mkdir(exist_ok=True)
    layers = f"lowerdir={lower}:{empty}"
    if upper is not None:
        work = upper.with_name(f"{upper.name}.work")
        for folder in (upper, work):
            folder.mkdir(exist_ok=True)
        layers += f",upperdir={upper},workdir={work}"
    return mount(at, on, "-t", "overlay", "-o", layers + options, "overlay")


class Image:
    """A file system in a file, on one loop device at a time.

    Attributes:
        path: The image.
        on: Where it is mounted.
    """

    def __init__(self, at: Place, kind: str) -> None:
        self._at, self.path, self.on = at, at.folder / "image", at.folder / "mounted"
        with self.path.open("wb") as file:
            file.truncate(_BYTES[kind])
        run_or_skip(*_MAKE[kind], str(self.path))
        self._devices: list[str] = []
        self.mount()

    def mount(self, *options: str) -> None:
        device = run_or_skip("losetup", "--find", "--show", str(self.path))
        self._devices.append(device)
        self._at.unwind.callback(self._detach, device)
        mount(self._at, self.on, *options, device)

    def unmount(self) -> None:
        unmount(self.on)
        self._detach(self._devices[-1])

    def mount_by_another_device(self) -> None:
        """Mount it again through a loop device of another number."""
        unmount(self.on)
        self.mount()
        self._detach(self._devices[0])  # only now: its number would have been the free one

    def edit(self, *commands: str) -> None:
        """Change an ext4 image that is not mounted, by debugfs, and mount it again."""
        self.unmount()
        for command in commands:
            run_or_skip("debugfs", "-w", "-R", command, str(self.path))
        self.mount()

    def _detach(self, device: str) -> None:
        if device in self._devices:
            self._devices.remove(device)
            run("losetup", "--detach", device)
