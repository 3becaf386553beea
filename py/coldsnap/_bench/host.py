"""What this host has to give: memory, disk space, file systems, and the refusals that follow from them.

Sources: proc(5) for meminfo, cgroup and mountinfo; the kernel's cgroup-v1/memory and cgroup-v2 documents for what
counts as used.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from coldsnap import errors
from coldsnap._bench.sizes import MIB, format_size

# Where files live in memory: such a place has no cold state, and what it holds is taken from MemAvailable.
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})

# The share of a file system that calibration leaves free, so that nobody else's write fails because of us.
LEFT_FREE = 0.05
SPACE_FACTOR = 1.1  # padding, header, manifest and leaves stay well below a tenth of the payload
MEMORY_SLACK = 256 * MIB  # the interpreter, numpy, and the buffers of the raw probes


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: where, which file system type, what is mounted."""

    point: str
    kind: str
    source: str


def mount_of(folder: Path) -> Mount:
    """Name the mount that holds `folder`; of several mounted on one another the last one counts."""
    path = os.path.realpath(folder)
    best = Mount("/", "unknown", "none")
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(tail) < 2:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best.point):
            best = Mount(point, tail[0], _unescape(tail[1]))
    return best


def memory_available() -> tuple[int, str]:
    """Tell how many bytes of host memory this process can still take, and what bounds it.

    Returns:
        The smaller of MemAvailable and the headroom of each memory cgroup above this process (its limit, less what it
        uses, plus the page cache it could give back), and the words for which of them it was.
    """
    best = (_meminfo().get("MemAvailable", 0), "MemAvailable of this machine")
    for folder, limit_name, usage_name, keys in _memory_cgroups():
        limit, usage = _number(folder / limit_name), _number(folder / usage_name)
        # v1 writes "no limit" as the largest page-aligned number, v2 as the word max, which _number gives as None.
        if limit is None or usage is None or limit >= 1 << 60:
            continue
        stat = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat") if " " in line)
        headroom = limit - usage + sum(int(stat.get(key, 0)) for key in keys)
        if headroom < best[0]:
            best = (max(0, headroom), f"the memory cgroup's limit of {format_size(limit)}")
    return best


def memory_total() -> int:
    """Tell the bytes of memory in this machine."""
    return _meminfo().get("MemTotal", 0)


def require_memory(payload_bytes: int, ring_bytes: int, *, on_host: bool) -> None:
    """Refuse a payload that this machine's memory cannot hold.

    Args:
        payload_bytes: The blob's payload; it is held once as source and then destination, and once in the page cache.
        ring_bytes: Staging memory, chunk times depth.
        on_host: Whether destinations are in host memory; only the words differ, the source needs the same space.
    Raises:
        RequestInvalidError: It does not fit; the message has both numbers. Nothing was allocated or written.
    """
    need = 2 * payload_bytes + ring_bytes + MEMORY_SLACK
    have, bound = memory_available()
    if need > have:
        place = "source and destination" if on_host else "source"
        raise errors.RequestInvalidError(
            f"calibrate with --bytes={payload_bytes}: needs {need} bytes of host memory ({place} {payload_bytes}, page "
            f"cache {payload_bytes}, ring {ring_bytes}, {MEMORY_SLACK} besides), and {have} are available by {bound}",
            remedy="give a smaller --bytes",
        )


def require_space(folder: Path, payload_bytes: int, copies: float = 1.0) -> None:
    """Refuse a blob that would fill the file system of `folder`.

    Args:
        folder: Where.
        payload_bytes: Of the blob.
        copies: How many times the payload will be there at the same time.
    Raises:
        RequestInvalidError: After 1.1 x `payload_bytes` x `copies` less than 5 % of the file system would be free; the message has
            the numbers. Nothing was written.
    """
    facts = os.statvfs(folder)
    free, total = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    each = SPACE_FACTOR * copies
    need, keep = int(payload_bytes * each), int(total * LEFT_FREE)
    if need + keep > free:
        largest = max(0, int((free - keep) / each)) // MIB * MIB
        remedy = f"give at most --bytes={largest}, or another --path" if largest else "give another --path"
        raise errors.RequestInvalidError(
            f"write a blob of {payload_bytes} bytes into {folder}: that takes up to {need} bytes and must leave 5 % "
            f"({keep} bytes) of the file system free, and {free} of {total} bytes are free",
            remedy=remedy,
        )


def _memory_cgroups() -> list[tuple[Path, str, str, tuple[str, ...]]]:
    """List the memory cgroups that bound this process, with the names of their files (v1 and v2 differ)."""
    roots: dict[str, Path] = {}
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        tail = after.split(" ")
        point = Path(_unescape(before.split(" ")[4])) if before.count(" ") >= 4 else Path("/")
        if tail[0] == "cgroup2":
            roots.setdefault("", point)
        elif tail[0] == "cgroup" and "memory" in tail[-1].split(","):
            roots.setdefault("memory", point)
    v1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
    v2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))
    found: list[tuple[Path, str, str, tuple[str, ...]]] = []
    for line in _lines("/proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        key = "memory" if "memory" in controllers.split(",") else controllers
        if key not in roots:
            continue
        folder = roots[key] / path.lstrip("/")
        # Inside a container the path is the host's and is not there: the mount's root is then our own cgroup.
        while not folder.is_dir() and folder != roots[key]:
            folder = folder.parent
        while True:
            found.append((folder, *(v1 if key else v2)))
            if folder == roots[key]:
                break
            folder = folder.parent
    return found


def _meminfo() -> dict[str, int]:
    """Read /proc/meminfo into bytes per name."""
    pairs = (line.split(":") for line in _lines("/proc/meminfo") if ":" in line)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs if rest.split()[0].isdigit()}


def _number(path: Path) -> int | None:
    """Read a file with one number; None where it is missing or holds a word."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: str | Path) -> list[str]:
    """Read a small text file; a file that is not there has no lines."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _unescape(text: str) -> str:
    r"""Undo mountinfo's octal escapes (``\040`` is a space)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
