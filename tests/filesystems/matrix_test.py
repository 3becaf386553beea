"""Each row of docs/filesystems.md comes out as it stands there; a file system that this machine refuses is skipped."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform

import pytest

from tests.filesystems import matrix, page
from tests.filesystems.systems import SYSTEMS, System
from tests.trust.place import Place

PAGE = pathlib.Path(os.environ["RUNFILES_ROOT"], "docs", "filesystems.md")
# Since then tmpfs has direct I/O, and cachestat answers in place of mincore.
OLDEST = (6, 6)
UPDATE = "if it is right so, run: ./bazelw run //tests/filesystems:update"


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_row(system: System, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if tuple(int(part) for part in platform.release().split(".")[:2]) < OLDEST:
        pytest.skip(
            f"the page shows what Linux {'.'.join(map(str, OLDEST))} and newer do; this is {platform.release()}"
        )
    with contextlib.ExitStack() as unwind:
        rows = matrix.rows_of(system.make(Place(tmp_path, monkeypatch, unwind)))
    assert rows == page.shown(PAGE.read_text(encoding="utf-8")).get(system.name), UPDATE


def test_the_page_has_every_row_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(page.shown(text)) == sorted(system.name for system in SYSTEMS)
    assert page.rewrite(text, {}) == text, UPDATE
