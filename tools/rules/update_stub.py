"""Writes the generated description of an extension module over the checked-in one."""

import os
import pathlib


def main() -> None:
    """Copies $GENERATED over $CHECKED_IN in the work tree."""
    root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if root is None:
        raise SystemExit("write the stub: no work tree is known; remedy: start this with 'bazel run'")
    target = os.environ["CHECKED_IN"]
    text = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["GENERATED"]).read_text()
    pathlib.Path(root, target).write_text(text)
    print(f"wrote {target}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
