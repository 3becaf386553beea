"""Runs a command in another system's root, as the first process of namespaces of its own:

    unshare --mount --pid --fork --kill-child python3 -m tests.roots.enter ORDER.json

The order has ``root``; ``binds``, each (path here, path there, whether read-only); ``command``; and ``environment``.
The mounts are nobody else's, so they are gone with the last process, however it ends. The root is entered by
pivot_root: in a mere chroot the kernel refuses user namespaces, which Bazel's sandbox and a few tests make.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys

from tests.pods.enter import below, bind, mount

_MNT_DETACH, _SYS_PIVOT_ROOT = 2, 155
_libc = ctypes.CDLL(None, use_errno=True)


def _lay_in(source: str, on: pathlib.Path, *, read_only: bool) -> None:
    if os.path.isdir(source):
        on.mkdir(parents=True, exist_ok=True)
    elif not on.exists():
        on.parent.mkdir(parents=True, exist_ok=True)
        on.touch()
    bind(source, on, read_only=read_only)


def _enter(root: pathlib.Path) -> None:
    """Makes ``root`` the root; what was it before is no longer to be seen."""
    os.chdir(root)
    # The old root comes to lie over the new one and is taken away from there: no folder is needed for it.
    if _libc.syscall(_SYS_PIVOT_ROOT, b".", b".") or _libc.umount2(b".", _MNT_DETACH):
        raise OSError(ctypes.get_errno(), f"enter {root} by pivot_root: {os.strerror(ctypes.get_errno())}")
    os.chdir("/")


def main(file: str) -> None:
    order = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    root = pathlib.Path(order["root"])
    bind(str(root), root, read_only=False)
    mount(root / "proc", "-t", "proc", "proc")
    for folder in ("/dev", "/sys"):
        bind(folder, below(root, folder), read_only=False)
    for source, path, read_only in order["binds"]:
        _lay_in(source, below(root, path), read_only=read_only)
    _enter(root)
    os.umask(0o022)
    os.execvpe(order["command"][0], order["command"], order["environment"])


if __name__ == "__main__":
    main(*sys.argv[1:])
