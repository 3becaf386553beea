"""What the host says about memory and mounts, from files of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldsnap._bench import host, machine, sizes


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Contents by path, in place of /proc and of control groups."""
    contents: dict[str, str] = {}
    monkeypatch.setattr(host, "_lines", lambda path: contents.get(str(path), "").splitlines())
    monkeypatch.setattr(Path, "is_dir", lambda path: any(name.startswith(f"{path}/") for name in contents))
    contents["/proc/meminfo"] = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\n"
    return contents


def test_without_a_control_group_the_machine_bounds(files: dict[str, str]) -> None:
    assert host.memory_available() == (8000 * 1024, "MemAvailable of this machine")


def test_a_v2_group_counts_its_page_cache_as_free(files: dict[str, str]) -> None:
    files["/proc/self/mountinfo"] = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    files["/proc/self/cgroup"] = "0::/a/b"
    files["/sys/fs/cgroup/a/b/memory.max"] = "max"
    files["/sys/fs/cgroup/a/memory.max"] = "4096000"
    files["/sys/fs/cgroup/a/memory.current"] = "3000000"
    files["/sys/fs/cgroup/a/memory.stat"] = "anon 5\ninactive_file 100000\nactive_file 50000"
    assert host.memory_available() == (4096000 - 3000000 + 150000, "the memory cgroup's limit of 3.9 MiB")


def test_a_v1_group_in_a_container_is_found_at_the_mount(files: dict[str, str]) -> None:
    files["/proc/self/mountinfo"] = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    files["/proc/self/cgroup"] = "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n0::/"
    files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "2048000"
    files["/sys/fs/cgroup/memory/memory.usage_in_bytes"] = "48000"
    assert host.memory_available()[0] == 2000000
    files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712"
    assert host.memory_available()[0] == 8000 * 1024


def test_the_innermost_mount_is_named(files: dict[str, str]) -> None:
    files["/proc/self/mountinfo"] = (
        "20 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "21 20 0:30 / /mnt rw - tmpfs tmpfs rw\n"
        "22 21 0:31 / /mnt/a\\040b rw - nfs4 server:/export rw\n"
        "23 21 0:32 / /mnt/a rw - xfs /dev/vdb rw"
    )
    assert host.mount_of(Path("/mnt/a b/c")) == host.Mount("/mnt/a b", "nfs4", "server:/export")
    assert host.mount_of(Path("/mnt/ab")).kind == "tmpfs"
    assert host.mount_of(Path("/home")).kind == "ext4"


def test_a_network_mount_does_not_name_its_host() -> None:
    assert machine._drive(host.Mount("/mnt", "nfs4", "server:/export")) is None


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (65536, "64 KiB"), (512 << 20, "512 MiB"), ((1 << 30) + 1, "1.0 GiB")],
)
def test_sizes_for_people(nbytes: int, text: str) -> None:
    assert sizes.format_size(nbytes) == text


def test_rates_have_three_digits() -> None:
    assert [sizes.format_rate(rate) for rate in (2.131e9, 15.44e9, 412.3e9)] == ["2.13", "15.4", "412"]
