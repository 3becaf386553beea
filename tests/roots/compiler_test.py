"""`./bazelw` gives Bazel a compiler that nvcc takes: programs of that name in a folder of the test stand for the machine's."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

_BAZELW = pathlib.Path(os.environ.get("RUNFILES_ROOT", "."), "bazelw")


def _bazelw(
    folder: pathlib.Path, compilers: list[str], default: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Runs a copy of bazelw where PATH has these versions of g++, and one as plain ``g++``; Bazel prints CC."""
    for version in compilers:
        for name in (f"g++-{version}", f"gcc-{version}"):
            _program(folder / name, "exit 1")
    (folder / "g++").symlink_to(f"g++-{default}")
    (folder / "dirname").symlink_to(shutil.which("dirname") or "/usr/bin/dirname")
    _program(folder / "bazel", 'echo "CC=${CC:-}"')
    bazelw = folder / "bazelw"
    bazelw.write_bytes(_BAZELW.read_bytes())
    return subprocess.run(
        ["/bin/bash", bazelw, "version"],
        cwd=folder,
        env={
            "PATH": str(folder),
            "COLDSNAP_DEPS": "/",
            "COLDSNAP_PYTHON": "any",
            "COLDSNAP_NO_INSTALL": "1",
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def _program(path: pathlib.Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("compilers", "default"), [(["12"], "12"), (["15"], "15"), (["12", "16"], "12")])
def test_the_machines_own_compiler_stays(tmp_path: pathlib.Path, compilers: list[str], default: str) -> None:
    done = _bazelw(tmp_path, compilers, default)
    assert (done.returncode, done.stdout, done.stderr) == (0, "CC=\n", "")


def test_a_newer_one_gives_way_to_the_newest_that_nvcc_takes(tmp_path: pathlib.Path) -> None:
    done = _bazelw(tmp_path, ["14", "15", "16"], "16")
    assert (done.returncode, done.stdout) == (0, f"CC={tmp_path}/gcc-15\n"), done.stderr


def test_a_compiler_that_was_named_stays(tmp_path: pathlib.Path) -> None:
    assert _bazelw(tmp_path, ["15", "16"], "16", CC="mine").stdout == "CC=mine\n"


def test_what_is_missing_is_said(tmp_path: pathlib.Path) -> None:
    done = _bazelw(tmp_path, ["16"], "16")
    assert done.returncode == 1
    assert "the C++ compiler is g++-16 here, and nvcc takes g++ up to 15" in done.stderr
    assert "remedy: apt-get install --no-install-recommends g++-15" in done.stderr
