"""`./bazelw run //tests/filesystems:update`: writes the rows of docs/filesystems.md anew, from a run on this machine."""

import contextlib
import os
import pathlib
import sys
import tempfile

import pytest

from tests.filesystems import matrix, page
from tests.filesystems.systems import SYSTEMS, System
from tests.trust.place import Place


def came_out(system: System) -> matrix.Rows:
    """The rows of one file system; skips where this machine refuses it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as environ,
        contextlib.ExitStack() as unwind,
    ):
        return matrix.rows_of(system.make(Place(pathlib.Path(folder), environ, unwind)))


def main() -> int:
    """Rewrite the rows of what this machine can mount and say so; returns the exit status."""
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        print("update: no work tree is known; start this with ./bazelw run //tests/filesystems:update", file=sys.stderr)
        return 2
    rows = {}
    for system in SYSTEMS:
        try:
            rows[system.name] = came_out(system)
        except pytest.skip.Exception as reason:
            print(f"{system.name}: kept, as this machine refuses it: {reason}")
    target = pathlib.Path(where, "docs", "filesystems.md")
    target.write_text(page.rewrite(target.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(f"docs/filesystems.md: {len(rows)} of {len(SYSTEMS)} file systems written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
