"""What a container runtime does before a container's first instruction, as root in namespaces of its own.

    unshare --mount --pid --ipc --uts --fork --kill-child python3 enter.py CONTAINER.json

The root is an overlay over an empty tree, with the image's folders and the pod's volumes bound into it. Then all rights go,
and the command takes this process's place. Stands alone: nothing of the project is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = -100, 0x8000, 1, 442
_PR_SET_NO_NEW_PRIVS = 38
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
# An image knows root, and nobody who has a number from the cluster.
_FILES = {
    "passwd": "root:x:0:0:root:/:/bin/sh\n",
    "group": "root:x:0:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_HOME = "app/home"
_SHM = "size=64m,mode=1777"  # of every container, unless a volume takes its place

_libc = ctypes.CDLL(None, use_errno=True)


def mount(on: pathlib.Path, *words: str) -> None:
    subprocess.run(["mount", *words, str(on)], check=True)


def bind(source: str, on: pathlib.Path, *, read_only: bool) -> None:
    mount(on, "--rbind", source)
    if read_only:
        # Of util-linux only 2.39 and later can do this for the mounts below, too.
        attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
        path = ctypes.c_char_p(os.fsencode(on))
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        if _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, ctypes.byref(attributes), size):
            raise OSError(ctypes.get_errno(), f"make {on} read-only")


def below(root: pathlib.Path, path: str) -> pathlib.Path:
    return root / path.lstrip("/")


def make_tree(lower: pathlib.Path, points: list[str]) -> None:
    """The image's own layer: mount points, and the few files that a C library asks for."""
    for path in ("/etc", "/proc", "/sys", "/dev", *points):
        below(lower, path).mkdir(parents=True, exist_ok=True)
    for name, target in _LINKS.items():
        (lower / name).symlink_to(target)
    for name, text in _FILES.items():
        (lower / "etc" / name).write_text(text)
    home = lower / _HOME
    home.mkdir(parents=True)
    home.chmod(0o770)  # of group 0, as images have it that are made for any user
    if os.path.exists("/etc/ld.so.cache"):
        shutil.copy("/etc/ld.so.cache", lower / "etc")


def make_devices(root: pathlib.Path) -> None:
    mount(root / "dev", "-t", "tmpfs", "-o", "mode=755", "dev")
    for name in _DEVICES:
        (root / "dev" / name).touch()
        bind(f"/dev/{name}", root / "dev" / name, read_only=False)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    (root / "dev" / "shm").mkdir()
    mount(root / "dev" / "shm", "-t", "tmpfs", "-o", _SHM, "shm")


def make_root(container: dict[str, Any]) -> pathlib.Path:
    layers = pathlib.Path(container["layers"])
    lower, root = layers / "lower", layers / "root"
    mounts = sorted(container["image"] + container["mounts"], key=lambda each: each[1])
    for folder in (lower, root, layers / "work"):
        folder.mkdir()
    make_tree(lower, [path for _, path, _ in mounts])
    options = f"lowerdir={lower},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    mount(root, "-t", "overlay", "-o", options, "overlay")
    mount(root / "proc", "-t", "proc", "proc")
    bind("/sys", root / "sys", read_only=True)
    make_devices(root)
    for source, path, read_only in mounts:
        below(root, path).mkdir(parents=True, exist_ok=True)  # below another mount, as /dev/shm is
        bind(source, below(root, path), read_only=read_only)
    if container["read_only"]:
        # The mount, not the overlay itself: a newer mount(8) hands over all options anew, which an overlay refuses.
        mount(root, "-o", "remount,bind,ro")
    return root


def main(file: str) -> None:
    container = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    os.chroot(make_root(container))
    os.chdir("/")
    os.umask(0o022)
    os.setgroups(container["groups"])
    os.setresgid(*[container["group"]] * 3)
    os.setresuid(*[container["user"]] * 3)
    if container["no_new_privileges"] and _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "give up new privileges")
    command, environment = container["command"], container["environment"]
    found = shutil.which(command[0], path=environment["PATH"])
    os.execve(found or command[0], command, environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
