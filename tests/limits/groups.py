"""The control groups of this process as Python finds them: a second opinion on `cc/sys/cgroup.cc`."""

from __future__ import annotations

from pathlib import Path


def group_folders(controller: str) -> tuple[int, list[Path]]:
    """This process's group and its parents as they are mounted, and the version they have."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = [(1, path) for _, names, path in lines if controller in names.split(",")]
    paths += [(2, path) for number, _, path in lines if number == "0"]
    for version, path in paths[:1]:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place, kind = (half.split() for half in line.split(" - "))
            of_version = (
                (kind[0] == "cgroup" and controller in kind[2].split(",")) if version == 1 else kind[0] == "cgroup2"
            )
            if of_version and (path + "/").startswith(place[3].rstrip("/") + "/"):
                top = Path(place[4])
                own = top / path[len(place[3].rstrip("/")) :].lstrip("/")
                return version, [own, *(parent for parent in own.parents if parent.is_relative_to(top))]
    return 0, []


def numbers(path: Path) -> list[int | None]:
    """The numbers of a file, None for those that mean no limit; nothing if it is not there."""
    if not path.exists():
        return []
    return [None if word in ("max", "-1") else int(word) for word in path.read_text().split()]
