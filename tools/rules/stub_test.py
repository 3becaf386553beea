"""The checked-in description of an extension module says what the module is."""

import difflib
import os
import pathlib


def lines_of(variable: str) -> list[str]:
    """The file that the environment variable names, as lines."""
    return pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ[variable]).read_text().splitlines()


def test_checked_in_stub_matches_the_module() -> None:
    diff = difflib.unified_diff(lines_of("CHECKED_IN"), lines_of("GENERATED"), "checked in", "generated", lineterm="")
    text = "\n".join(diff)
    assert not text, f"the stub differs from the module; remedy: bazel run {os.environ['UPDATE']}\n{text}"
