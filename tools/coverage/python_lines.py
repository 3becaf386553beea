"""Python lines that ran, counted by coverage.py in every interpreter that a test starts with our search path.

`site` imports a module named sitecustomize where it finds one. The launcher of tools/rules/python.bzl puts the folder
that `prepare` makes at the end of PYTHONPATH, and child processes inherit it; one that is started without it, as the
tests of the wheel do, or that ends by a signal or os._exit, isn't counted.
"""

from __future__ import annotations

import pathlib

import coverage

from tools.coverage.gaps import Count

FOLDER = "py/coldsnap"

_SITE = """import sys

sys.path.append({packages!r})
import coverage

coverage.process_startup()
"""

_SETTINGS = """[run]
data_file = {folder}/counts
parallel = true
include = {sources}/*
omit = {sources}/*_test.py
disable_warnings = no-data-collected, module-not-measured, already-imported
"""


def prepare(folder: pathlib.Path, top: pathlib.Path) -> dict[str, str]:
    """Writes what counts into ``folder`` (absolute, empty) and gives the variables that switch it on in a test."""
    packages = str(pathlib.Path(coverage.__file__).parent.parent)
    settings = folder / "settings"
    settings.write_text(_SETTINGS.format(folder=folder, sources=top / FOLDER), encoding="utf-8")
    (folder / "sitecustomize.py").write_text(_SITE.format(packages=packages), encoding="utf-8")
    return {"COVERAGE_SITE": str(folder), "COVERAGE_PROCESS_START": str(settings)}


def read(folder: pathlib.Path, top: pathlib.Path) -> dict[str, Count]:
    """The count of each folder of Python that users import, by its path below ``top``.

    Raises:
        coverage.exceptions.NoDataError: No interpreter left a count.
    """
    counted = coverage.Coverage(config_file=str(folder / "settings"))
    counted.combine()
    found: dict[str, Count] = {}
    for path in sorted((top / FOLDER).rglob("*.py")):
        if path.name.endswith("_test.py"):
            continue
        _, statements, _, missing, _ = counted.analysis2(str(path))
        name = str(path.parent.relative_to(top))
        found[name] = found.get(name, Count()) + Count(len(statements), len(statements) - len(missing))
    return found
