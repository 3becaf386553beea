"""`./bazelw run //tests/docs:update`: writes the tables of docs/*.md anew, from the code."""

import os
import sys
from pathlib import Path

from tests.docs import tables


def main() -> int:
    """Rewrite what differs and say so; returns the exit status."""
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        print("update: no work tree is known; start this with ./bazelw run //tests/docs:update", file=sys.stderr)
        return 2
    for page in sorted(Path(where, "docs").glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new, names = tables.rewrite(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
        if names:
            print(f"docs/{page.name}: {', '.join(names)}: {'rewritten' if new != old else 'up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
