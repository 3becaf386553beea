"""Opens and verifies one artifact in a process that may use little: `attempt.py FOLDER open|verify|admit BYTES`.

Prints how each try ended and how much memory it took, as JSON. BYTES bounds the address space that the tries may add
to what the process has when they begin.
"""

from __future__ import annotations

import json
import pathlib
import re
import resource
import sys

import coldsnap
from coldsnap import errors
from coldsnap.artifact import load_native

# Of processor time, which does not depend on what else the machine does; the slowest case takes a tenth of it.
CPU_SECONDS = 20


def status_bytes(field: str) -> int:
    text = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found, f"/proc/self/status has no {field}"
    return int(found.group(1)) * 1024


def attempt(operation: str, folder: str) -> dict[str, object]:
    try:
        if operation == "open":
            coldsnap.open(folder, shard="shard-00-00-00").close()
        else:
            coldsnap.verify(folder, admit=operation == "admit")
    except errors.Error as refusal:
        return {"operation": operation, "code": refusal.code, "message": str(refusal)}
    return {"operation": operation, "code": None, "message": ""}


def main(folder: str, operations: list[str], may_add: int) -> None:
    load_native()
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again from here
    before = status_bytes("VmRSS")
    bound = status_bytes("VmSize") + may_add
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    ends = [attempt(operation, folder) for operation in operations]
    print(json.dumps({"ends": ends, "grown_bytes": status_bytes("VmHWM") - before}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split("+"), int(sys.argv[3]))
