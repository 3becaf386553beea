"""The wheel installs with pip alone and works in a fresh interpreter, away from this repository."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from tests.wheel import shared_objects

WHEEL = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["WHEEL"])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder into which pip installed the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    # Bazel's runfiles are links, and pip wants the real file's name; the link has it.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, str(WHEEL)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def run_installed(folder: pathlib.Path, code: str) -> str:
    """What a fresh interpreter prints that sees ``folder`` and the environment's own packages, not our sources."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def native_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The shared objects of the installed package."""
    return sorted(path for path in (folder / "coldsnap").iterdir() if ".so" in path.suffixes)


def test_imports_from_where_it_was_installed(installed: pathlib.Path) -> None:
    printed = run_installed(installed, "import coldsnap; print(coldsnap.__file__ or list(coldsnap.__path__)[0])")
    assert printed.strip().startswith(str(installed))


def test_native_module_finds_its_libraries_beside_it(installed: pathlib.Path) -> None:
    code = "import coldsnap._native as n; print(n.__file__); print(open('/proc/self/maps').read())"
    printed = run_installed(installed, code)
    assert printed.startswith(str(installed))
    assert str(installed / "coldsnap" / "libisal.so.2") in printed


def test_import_brings_neither_torch_nor_a_cuda_library(installed: pathlib.Path) -> None:
    code = "import coldsnap, sys; from coldsnap import _native; print('torch' in sys.modules, open('/proc/self/maps').read())"
    printed = run_installed(installed, code)
    assert printed.startswith("False")
    assert str(installed / "coldsnap") in printed  # the core was mapped, so its needs would have been too
    assert re.findall(r"/lib(?:cuda|cudart|nv\w*|cufile|torch\w*|c10\w*)[.\d-]*\.so", printed) == []


def test_exports_nothing_but_the_module(installed: pathlib.Path) -> None:
    (module,) = (path for path in native_files(installed) if path.name.startswith("_native"))
    assert shared_objects.exports(module) == ["PyInit__native"]


def test_needs_no_newer_system_than_promised(installed: pathlib.Path) -> None:
    for path in native_files(installed):
        assert shared_objects.too_new(path) == [], path.name


def test_a_newer_system_promises_itself() -> None:
    assert shared_objects.newest_allowed((2, 36)) == shared_objects.PROMISED
    assert shared_objects.newest_allowed((2, 31)) == shared_objects.PROMISED
    assert shared_objects.newest_allowed((2, 37)) == {"GLIBC": (2, 37)}


def test_needs_no_library_that_an_image_may_lack(installed: pathlib.Path) -> None:
    for path in native_files(installed):
        assert shared_objects.strangers(path) == [], path.name


def test_says_the_system_it_needs() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        (listed,) = (name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = re.findall(r"^Tag: \S+-(\S+)$", wheel.read(listed).decode(), re.MULTILINE)
    platform = "manylinux_{}_{}_".format(*shared_objects.newest_allowed(shared_objects.glibc())["GLIBC"])
    assert [tag.rpartition(platform)[1] for tag in tags] == [platform], tags
    assert WHEEL.name.endswith(f"-{tags[0]}.whl")


def test_record_lists_every_member_with_its_digest() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {row[0]: row[1] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
        assert set(rows) == set(wheel.namelist())
        for name, listed in rows.items():
            if name == record:
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
            assert listed == f"sha256={digest}", name


def test_carries_typing_the_console_script_and_the_engine_s_plugin() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        names = set(wheel.namelist())
        assert {"coldsnap/py.typed", "coldsnap/_native.pyi"} <= names
        (scripts,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        groups = wheel.read(scripts).decode()
        assert "[console_scripts]\ncoldsnap = coldsnap.cli:main" in groups
        assert "[vllm.general_plugins]\ncoldsnap = coldsnap.adapters.vllm.plugin:register" in groups
        assert "coldsnap/adapters/vllm/plugin.py" in names


def test_what_draws_reports_is_asked_for_by_an_extra_alone() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        lines = wheel.read(metadata).decode().splitlines()
    assert "Provides-Extra: report" in lines
    assert [line for line in lines if "matplotlib" in line] == ['Requires-Dist: matplotlib ; extra == "report"']
