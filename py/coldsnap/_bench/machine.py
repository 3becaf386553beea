"""The machine record of results.json: enough to understand a number, nothing that names a host, a user or a path."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from coldsnap import _native, version
from coldsnap._bench import host


def machine_record(device: str, folder: Path | None) -> dict[str, Any]:
    """Describe what is measured.

    Args:
        device: ``host`` or ``cuda:N``.
        folder: Where the blob lies; None when no drive is involved.
    Returns:
        Keys in a fixed order; sizes in bytes. `gpu` is None where the host's memory stands in for one.
    """
    record: dict[str, Any] = {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": _native.limits()["usable_cpus"],
        "memory_bytes": host.memory_total(),
        "kernel": platform.release(),
        "device": device,
        "gpu": None,
    }
    if device != "host":
        record["gpu"] = {"name": _native.device_name(device), "driver": _driver_version()}
    if folder is not None:
        mount = host.mount_of(folder)
        record["file_system"] = mount.kind
        record["drive"] = _drive(mount)
    record["python"] = platform.python_version()
    record["versions"] = {name: _version_of(name) for name in ("numpy",)} | {"coldsnap": version.VERSION}
    return record


def commit_or_version() -> str:
    """Name the source that was measured: git's HEAD (with ``-dirty``) in a checkout of coldsnap, else the version."""
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY") or str(Path(os.path.realpath(__file__)).parent)
    top = _git(root, "rev-parse", "--show-toplevel")
    # An installed package may lie inside somebody else's repository, whose commit says nothing about coldsnap.
    if top is None or not (Path(top) / "py" / "coldsnap" / "_bench" / "machine.py").is_file():
        return version.VERSION
    head = _git(top, "rev-parse", "--verify", "HEAD")
    if head is None:
        return version.VERSION
    return f"{head}-dirty" if _git(top, "status", "--porcelain", "--untracked-files=no") else head


def _git(folder: str, *arguments: str) -> str | None:
    """Run git in `folder`; None where it fails or is not installed."""
    command = ["git", "-C", folder, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def _driver_version() -> str | None:
    """Read the NVIDIA driver's version: the first word with two dots or more in its own file."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((word for word in text.split() if word.count(".") >= 1 and word[0].isdigit()), None)


def _drive(mount: host.Mount) -> dict[str, Any] | None:
    """Describe the block device; None for network mounts, whose source would name a host."""
    if not mount.source.startswith("/dev/"):
        return None
    name = os.path.basename(os.path.realpath(mount.source))
    node = Path(os.path.realpath(f"/sys/class/block/{name}"))
    whole = node if (node / "queue").is_dir() else node.parent  # a partition's queue is its disk's
    model, rotational = _word(whole / "device" / "model"), _word(whole / "queue" / "rotational")
    return {"name": name, "model": model, "rotational": None if rotational is None else rotational == "1"}


def _word(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
