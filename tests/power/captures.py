"""What the power tests watch: `captures OPERATION FOLDER`, ends with the exit code of the failure (docs/errors.md)."""

from __future__ import annotations

import pathlib
import sys

import numpy as np

import coldsnap

IDENTITY = {"model": "power"}


def weights(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    sizes = {"small": 100, "other": 700, "large": 2 * 65536 + 7}
    return {name: random.integers(0, 256, nbytes, np.uint8) for name, nbytes in sizes.items()}


def to_path(folder: pathlib.Path) -> None:
    coldsnap.capture(weights(1), folder / "artifact", backend="python")


def to_store_twice(folder: pathlib.Path) -> None:
    """The second replaces the first; a file `returned-<n>` appears after each."""
    for number, backend in ((1, "python"), (2, "auto")):
        coldsnap.capture(weights(number), store=folder, identity=IDENTITY, backend=backend, replace=number == 2)
        (folder / f"returned-{number}").touch()


def main(operation: str, folder: str) -> int:
    try:
        {"to-path": to_path, "to-store-twice": to_store_twice}[operation](pathlib.Path(folder))
    except coldsnap.Error as failure:
        print(f"{operation}: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
