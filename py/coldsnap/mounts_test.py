"""Which file system a descriptor lies on, on this machine's own mounts and on what a kernel could answer."""

import errno
import fcntl
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from coldsnap import mounts

UUID = bytes(range(16))


@pytest.fixture
def fd(tmp_path: pathlib.Path) -> Any:
    number = os.open(tmp_path, os.O_RDONLY)
    yield number
    os.close(number)


def answers(raw: bytes) -> Callable[[int, int, bytearray], int]:
    def ioctl(fd: int, request: int, buffer: bytearray) -> int:
        assert request == 0x80111500
        buffer[: 1 + len(raw)] = bytes([len(raw)]) + raw
        return 0

    return ioctl


def fails(fd: int, request: int, buffer: bytearray) -> int:
    raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")


def test_names_the_mounts_of_this_machine(fd: int, tmp_path: pathlib.Path) -> None:
    proc = os.open("/proc", os.O_RDONLY)
    assert mounts.of_descriptor(proc) == mounts.FileSystem("proc", None, "/proc", "/")
    os.close(proc)
    found = mounts.of_descriptor(fd)
    assert found.type not in (None, "proc")
    assert found.point is not None
    assert os.path.realpath(tmp_path).startswith(found.point)
    assert os.stat(found.point).st_dev == os.fstat(fd).st_dev or found.type == "btrfs"


@pytest.mark.parametrize(
    ("raw", "uuid"),
    [
        (UUID, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (UUID[:4], "00010203"),
        (bytes(16), None),  # an image that was never given one
        (b"", None),
    ],
)
def test_the_kernel_s_uuid_is_spelled_as_tools_do(
    fd: int, monkeypatch: pytest.MonkeyPatch, raw: bytes, uuid: str | None
) -> None:
    monkeypatch.setattr(mounts, "_BY_UUID", "/nowhere")
    monkeypatch.setattr(fcntl, "ioctl", answers(raw))
    assert mounts.of_descriptor(fd).uuid == uuid


def test_an_older_kernel_is_helped_by_udev(fd: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", fails)
    monkeypatch.setattr(mounts, "_BY_UUID", str(tmp_path))
    assert mounts.of_descriptor(fd).uuid is None
    device = os.fstat(fd).st_dev
    try:
        os.mknod(tmp_path / "AA-BB", 0o60600, device)
    except OSError as cause:
        pytest.skip(f"a device node can't be made here: {cause.strerror}")
    os.mknod(tmp_path / "00-11", 0o60600, device + 1)
    os.mknod(tmp_path / "11-22", 0o20600, device)  # no block device
    assert mounts.of_descriptor(fd).uuid == "aa-bb"


def test_without_proc_the_answer_says_less(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_lines", lambda path: [])
    monkeypatch.setattr(fcntl, "ioctl", answers(UUID))
    assert mounts.of_descriptor(fd) == mounts.FileSystem(None, "00010203-0405-0607-0809-0a0b0c0d0e0f", None)


def test_a_file_that_cannot_be_read_has_no_lines() -> None:
    assert mounts._lines("/nowhere") == []


def test_points_are_unescaped(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {
        f"/proc/self/fdinfo/{fd}": ["pos:\t0", "mnt_id:\t77"],
        "/proc/self/mountinfo": [
            "7 1 8:1 / /other rw - ext4 /dev/a rw",
            r"77 1 8:1 / /my\040models rw,relatime shared:1 - xfs /dev/b rw",
        ],
    }
    monkeypatch.setattr(mounts, "_lines", lines.__getitem__)
    assert mounts.of_descriptor(fd)[::2] == ("xfs", "/my models")
