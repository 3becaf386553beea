"""Cache folders: a folder for each variable, and counts that see every file."""

from __future__ import annotations

import os
from pathlib import Path

from bench.startup import caches


def test_every_variable_has_a_folder_of_its_own(tmp_path: Path) -> None:
    bound = caches.bind(tmp_path / "root")
    assert set(bound) == set(caches.VARIABLES)
    assert len(set(bound.values())) == len(caches.VARIABLES)
    assert all(Path(folder).is_dir() and Path(folder).parent == tmp_path / "root" for folder in bound.values())
    # Starts share them: what the first one left is there for the second.
    assert caches.bind(tmp_path / "root") == bound


def test_counts(tmp_path: Path) -> None:
    nothing = {name: {"files": 0, "bytes": 0} for name in caches.VARIABLES}
    assert caches.count(tmp_path / "missing") == nothing
    bound = caches.bind(tmp_path)
    assert caches.count(tmp_path) == nothing

    triton = Path(bound["TRITON_CACHE_DIR"])
    (triton / "a" / "b").mkdir(parents=True)
    (triton / "a" / "b" / "kernel").write_bytes(bytes(10))
    (triton / "index").write_bytes(bytes(3))
    os.symlink("/nowhere", triton / "broken")
    Path(bound["XDG_CACHE_HOME"], "other").write_bytes(b"1")
    counts = caches.count(tmp_path)
    assert counts["TRITON_CACHE_DIR"] == {"files": 3, "bytes": 13 + len("/nowhere")}
    assert counts["XDG_CACHE_HOME"] == {"files": 1, "bytes": 1}
    assert caches.total(counts) == 4
