"""A root is entered and left again: nothing stays mounted or running, also when the program is ended meanwhile."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.roots.root import CHECKOUT, Root

_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
# What a program does that makes a root, with a command of an hour.
_PROGRAM = """
import pathlib, sys
from tests.roots import root_test
from tests.roots.root import scratch_folder

with scratch_folder(pathlib.Path(sys.argv[1])) as scratch:
    root_test.small_root(scratch).run("touch running; sleep 3600")
"""


def small_root(scratch: pathlib.Path) -> Root:
    """A root with the programs of this system."""
    system = scratch / "system"
    for folder in ("proc", "dev", "sys", "etc", CHECKOUT.lstrip("/")):
        (system / folder).mkdir(parents=True)
    for name, target in _LINKS.items():
        (system / name).symlink_to(target)
    return Root(scratch, [("/usr", "/usr", True)], {"GREETING": "hello"})


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Root:
    if os.geteuid():
        pytest.skip("a root is entered by root")
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"namespaces: {done.stderr.strip()}")
    return small_root(tmp_path)


def _mounts_below(folder: pathlib.Path) -> list[str]:
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def test_a_command_sees_the_root_and_no_more(root: Root, tmp_path: pathlib.Path) -> None:
    assert root.says("pwd; echo $GREETING $$; ls /") == "\n".join(
        [CHECKOUT, "hello 1", *sorted(["bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "srv", "sys", "usr"])]
    )
    assert root.says(f"test -e {tmp_path} && echo seen || echo hidden") == "hidden"
    assert _mounts_below(tmp_path) == []


def test_what_is_laid_in_read_only_stays_as_it_is(root: Root, tmp_path: pathlib.Path) -> None:
    kept, shared = tmp_path / "kept", tmp_path / "shared"
    kept.write_text("as it was")
    shared.mkdir()
    root.binds += [(str(kept), "/opt/kept", True), (str(shared), "/opt/shared", False)]
    assert root.run("echo more >/opt/shared/file; ! echo other >/opt/kept", tmp_path / "log") == 0
    assert "Read-only file system" in (tmp_path / "log").read_text()
    assert kept.read_text() == "as it was"
    assert (shared / "file").read_text() == "more\n"


def test_a_user_namespace_can_be_made_in_it(root: Root) -> None:
    """In a root entered by chroot alone the kernel refuses."""
    refused = subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, text=True, check=False)
    if refused.returncode:
        pytest.skip(f"user namespaces: {refused.stderr.strip()}")
    assert root.says("unshare --map-root-user echo made") == "made"


def test_a_script_that_fails_is_named(root: Root) -> None:
    with pytest.raises(SystemExit, match=r"run 'echo why; exit 3' in the root: it ended with 3\nwhy"):
        root.says("echo why; exit 3")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_nothing_is_left(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    below = tmp_path / "below"
    below.mkdir()
    program = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(below)])
    deadline = time.monotonic() + 60
    while not list(below.glob(f"*/system{CHECKOUT}/running")):
        assert time.monotonic() < deadline, "the command did not start"
        assert program.poll() is None
        time.sleep(0.05)
    program.send_signal(number)
    assert program.wait(60) == 128 + number
    assert list(below.iterdir()) == []
    for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        assert str(below).encode() not in _read(command)


def _read(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # gone meanwhile
