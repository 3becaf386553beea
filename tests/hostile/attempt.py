"""Opens and verifies artifacts, each in a process that may use little.

Reads requests from stdin, one JSON object a line: ``folder``, ``operations`` (of open, verify, admit) and ``may_add``,
which bounds the address space that the tries may add to what the process has when they begin. Answers each with a line:
how the process ended, how each try ended, and how much memory they took.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import resource
import signal
import sys
from typing import Any

import coldsnap
from coldsnap import errors
from coldsnap.artifact import load_native

# Of processor time, which does not depend on what else the machine does; the slowest case takes a tenth of it.
CPU_SECONDS = 20
WAITING_SECONDS = 100  # of a process that waits for ever


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


def attempts(folder: str, operations: list[str], may_add: int) -> dict[str, Any]:
    signal.alarm(WAITING_SECONDS)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again from here
    before = status_bytes("VmRSS")
    bound = status_bytes("VmSize") + may_add
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    ends = [attempt(operation, folder) for operation in operations]
    return {"ends": ends, "grown_bytes": status_bytes("VmHWM") - before}


def apart(request: dict[str, Any]) -> dict[str, Any]:
    """Make the attempts in a fork, which has all modules loaded already and ends after them."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(attempts(**request)).encode())
            os._exit(0)
        except BaseException:  # whatever it is, this process must not go on as its parent
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    return {"ended": os.waitstatus_to_exitcode(status), **(json.loads(answer) if answer else {})}


if __name__ == "__main__":
    load_native()
    for line in sys.stdin:
        print(json.dumps(apart(json.loads(line))), flush=True)
