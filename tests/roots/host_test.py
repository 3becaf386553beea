"""What a root is told of pip's settings here."""

from __future__ import annotations

import pathlib

import pytest

from tests.roots import host


def test_settings_of_files_are_told_and_the_environment_stays_apart() -> None:
    listing = (
        ":env:.timeout='9'\nglobal.find-links='/a\\n/b'\nglobal.index-url='https://x/simple'\ninstall.no-deps='true'\n"
    )
    settings = host.pip_settings(listing)
    assert settings == {
        "global": {"find-links": "/a\n/b", "index-url": "https://x/simple"},
        "install": {"no-deps": "true"},
    }
    assert host.pip_file(settings).splitlines() == [
        "[global]",
        "find-links = /a /b",
        "index-url = https://x/simple",
        "[install]",
        "no-deps = true",
    ]


def test_of_the_environment_only_what_is_pips() -> None:
    environ = {"PIP_CERT": "/c", "PIP_CONFIG_FILE": "/etc/mine.conf", "HOME": "/srv"}
    assert host.pip_environment(environ) == {"PIP_CERT": "/c"}


def test_paths_that_settings_name(tmp_path: pathlib.Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "mirror" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    values = [f"{wheels} /not/there", f"file://{index} https://x/simple", "true"]
    assert host.paths_in(values) == [str(index.parent), str(wheels)]


def test_the_systems_own_python_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"lay the Python below /usr into the root: .*; remedy: "):
        host.python_prefix(None, "/usr")


def test_a_folder_without_python_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit, match="it has no bin/python3"):
        host.python_prefix(str(tmp_path), "/usr")


def test_a_python_beside_the_system_is_taken(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").touch(mode=0o755)
    assert host.python_prefix(None, str(tmp_path)) == tmp_path


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(SystemExit, match=r"run false: it ended with 1"):
        host.printed("false")
    with pytest.raises(SystemExit, match=r"run no-such-program: No such file"):
        host.printed("no-such-program")
