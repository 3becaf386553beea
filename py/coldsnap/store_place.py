"""Which store is meant where none is named, and whether gigabytes belong there that nobody asked for.

    an argument, else COLDSNAP_STORE, else ``coldsnap`` in the user's XDG cache folder

What was named is used as it is. The default gets captures only where they outlive the container, and where they leave
room on the drive: docs/architecture.md, section 11.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from coldsnap import errors, mounts, settings
from coldsnap.new_file import saying
from coldsnap.settings import Setting

# A container's own layers, and memory: gone with the container.
_PASSING = ("overlay", "fuse.fuse-overlayfs", "aufs", "tmpfs", "ramfs", "devtmpfs", "rootfs")
# A pod's volume of the kind emptyDir on the node's drive, as mountinfo shows the folder that is mounted.
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
_TENTHS_OF_BLOB, _SHARE_LEFT_FREE = 11, 20  # 1.1 times the blob, and a twentieth of the drive stays free
_REMEDY = "name a store: COLDSNAP_STORE=DIR"


def chosen(given: str | None, environ: Mapping[str, str]) -> Setting:
    """The store's path, and who chose it. Nothing is made.

    Args:
        given: The argument; None where there is none.
        environ: Environment variables.
    Raises:
        RequestInvalidError: COLDSNAP_STORE is relative.
        PolicyRefusedError: It isn't set, and nobody knows a home folder.
    """
    if given:
        return Setting(given, "explicit")
    found = settings.resolve_one(settings.STORE, None, environ)
    return found if found.value is not None else Setting(_default(environ), "default")


def require_lasting(store: Setting) -> None:
    """Refuse the default store where what it holds would be gone with the container.

    Raises:
        PolicyRefusedError: It lies in a container's layer, in memory or in an emptyDir volume.
    """
    if store.chosen:
        return
    there = _nearest(Path(store.value))
    found, why = _file_system_of(there), ""
    if found.type in _PASSING:
        why = f"{there} is on {found.type}"
    elif _EMPTY_DIR in (found.root or ""):
        why = "it is in an emptyDir volume"
    if why:
        raise errors.PolicyRefusedError(
            f"capture into the default store {store.value}: {why}, and would be gone with the container",
            remedy=_REMEDY,
        )


def require_free(store: Setting, blob_bytes: int) -> None:
    """Refuse the default store where a blob would leave the drive too full: it needs 1.1 times its size and a twentieth.

    Raises:
        NoSpaceError: It would; the message has the bytes needed and available.
        IoError: The file system doesn't say.
    """
    if store.chosen:
        return
    there = _nearest(Path(store.value))
    with saying(f"ask for the free space of {there}"):
        room = os.statvfs(there)  # also of a project's quota, where the file system has one
    needed = blob_bytes * _TENTHS_OF_BLOB // 10 + room.f_blocks * room.f_frsize // _SHARE_LEFT_FREE
    if needed > room.f_bavail * room.f_frsize:
        raise errors.NoSpaceError(
            f"capture a blob of {blob_bytes} bytes into the default store {store.value}: with a tenth, and a twentieth "
            f"of the drive to stay free, that needs {needed} bytes, and {room.f_bavail * room.f_frsize} are available",
            remedy=f"make room, or {_REMEDY}",
        )


def _default(environ: Mapping[str, str]) -> str:
    cache = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = cache if os.path.isabs(cache) else os.path.join(environ.get("HOME", "") or os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise errors.PolicyRefusedError(
            f"find the default store: HOME is not set, and the system has no home folder for user {os.geteuid()}",
            remedy=_REMEDY,
        )
    return os.path.join(base, "coldsnap")


def _nearest(path: Path) -> Path:
    """The folder, or the first around it that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def _file_system_of(folder: Path) -> mounts.FileSystem:
    with saying(f"open {folder}"):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return mounts.of_descriptor(fd)
    finally:
        os.close(fd)
