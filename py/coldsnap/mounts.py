"""Which file system a descriptor lies on, as far as a process without rights can tell.

Source: proc(5) for fdinfo and mountinfo; FS_IOC_GETFSUUID in the kernel's uapi/linux/fs.h (Linux 6.9).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from typing import NamedTuple

_FS_IOC_GETFSUUID = 0x80111500  # _IOR(0x15, 0, struct fsuuid2): one byte with the length, 16 with the UUID
_BY_UUID = "/dev/disk/by-uuid"


class FileSystem(NamedTuple):
    """What could be read of it; None where nothing could.

    Attributes:
        type: As mountinfo spells it: ``ext4``, ``xfs``, ``nfs4``, ``overlay``, ...
        uuid: Lower-case hex digits and dashes; what has all digits 0 was never given one.
        point: Where it is mounted, as this process sees it.
        root: The folder of the file system that is mounted there.
    """

    type: str | None
    uuid: str | None
    point: str | None
    root: str | None = None


def of_descriptor(fd: int) -> FileSystem:
    """The file system below an open file or folder, whatever its path may mean by now."""
    kind, point, root = _mount_of(fd)
    return FileSystem(kind, _uuid_by_ioctl(fd) or _uuid_by_device(os.fstat(fd)), point, root)


def _mount_of(fd: int) -> tuple[str | None, str | None, str | None]:
    # By the mount's own number: the device number is no key, since btrfs gives each subvolume one of its own.
    number = next((line.split()[1] for line in _lines(f"/proc/self/fdinfo/{fd}") if line.startswith("mnt_id:")), None)
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and fields[0] == number and after:
            return after.split(" ")[0], _unescape(fields[4]), _unescape(fields[3])
    return None, None, None


def _uuid_by_ioctl(fd: int) -> str | None:
    answer = bytearray(17)
    try:
        fcntl.ioctl(fd, _FS_IOC_GETFSUUID, answer)
    except OSError:
        return None  # an older kernel, or a file system without one, such as NFS
    raw = bytes(answer[1 : 1 + answer[0]])
    if not any(raw):
        return None
    digits = raw.hex()
    if len(raw) != 16:
        return digits
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _uuid_by_device(info: os.stat_result) -> str | None:
    # What udev found out; containers seldom have the folder.
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_BY_UUID)):
            device = os.stat(os.path.join(_BY_UUID, name))
            if stat.S_ISBLK(device.st_mode) and device.st_rdev == info.st_dev:
                return name.lower()
    return None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []  # no /proc here, or a locked-down one: the answer then says less


def _unescape(text: str) -> str:
    r"""Undo mountinfo's octal escapes (``\040`` is a space)."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
