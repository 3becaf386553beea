"""Runs one start of an engine in a process of its own, as another file says, and keeps what that answers.

    python3 one_start.py SUBJECT.py REQUEST.json ANSWER.json

The subject's ``run`` takes the request and yields answers, each of which replaces the one before: what it had answered
until it failed or was killed is there. Nothing of an engine is imported here, since the engine's own processes import this
file again. The subject lies wherever it belongs and needs no import path.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Run = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]


def main(subject: str, asked: str, told: str) -> None:
    """As the command line; an answer appears whole or not at all."""
    run = _run_of(subject)
    for answer in run(json.loads(Path(asked).read_text(encoding="utf-8"))):
        scratch = Path(f"{told}.part")
        scratch.write_text(json.dumps(answer), encoding="utf-8")
        os.replace(scratch, told)


def _run_of(subject: str) -> Run:
    spec = importlib.util.spec_from_file_location(Path(subject).stem, subject)
    assert spec is not None and spec.loader is not None, f"{subject} is no Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Run = module.run
    return run


if __name__ == "__main__":
    main(*sys.argv[1:])
