"""Where one case runs: a folder, a trust folder, and restores whose outcome is one word."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest

import coldsnap
from coldsnap import cli
from tests.api import helpers
from tests.api.helpers import POISON, UNTOUCHED

SOMEBODY = 65534
GROUP = 4242
ACL = "system.posix_acl_access"
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_FIRST = re.compile(r"(?:chmod (?:-R )?go-w|rm|setfacl -R -b) [^ ,]+")
_OTHER_FOLDER = "let COLDSNAP_TRUST_DIR name a folder"


class Outcome(NamedTuple):
    """Of one restore: what the destinations hold then, and its failure's code and text, empty where there is none."""

    bytes: str
    code: str = ""
    message: str = ""


def run(*command: str) -> str:
    """Run a command and give what it printed.

    Raises:
        AssertionError: It failed.
    """
    words = ("/usr/bin/env", f"PATH={_PATH}", *command)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


def run_or_skip(*command: str) -> str:
    """The same, for what a machine may lack or refuse; skips with what it says."""
    if shutil.which(command[0], path=_PATH) is None:
        pytest.skip(f"{command[0]} is not installed")
    try:
        return run(*command)
    except AssertionError as failure:
        # The last line says why, but for mount's advice where to read more.
        pytest.skip([line for line in str(failure).strip().splitlines() if "dmesg(1)" not in line][-1])


class Place:
    """One case's folder and variables.

    Attributes:
        folder: Empty at first.
        unwind: Undone in reverse order when the case is over: mounts.
        user: Who restores, where it is not this process's own user.
    """

    def __init__(self, folder: pathlib.Path, environ: pytest.MonkeyPatch, unwind: contextlib.ExitStack) -> None:
        self.unwind, self.user = unwind, os.geteuid()
        self.tensors = helpers.mixed_tensors()
        self._environ = environ
        self.move(folder)

    def move(self, folder: pathlib.Path) -> None:
        """Go on in another folder."""
        self.folder = folder
        self.setenv("COLDSNAP_STATE_DIR", str(folder / "state"))
        self.setenv("COLDSNAP_TRUST_DIR", str(folder / "trust"))

    def setenv(self, name: str, value: str | None) -> None:
        """Set a variable, or remove it."""
        if value is None:
            self._environ.delenv(name)
        else:
            self._environ.setenv(name, value)

    @property
    def trust(self) -> pathlib.Path:
        return pathlib.Path(os.environ["COLDSNAP_TRUST_DIR"])

    def captured(self, path: pathlib.Path | None = None) -> pathlib.Path:
        """A new artifact, at ``path`` or in this folder."""
        path = path or self.folder / "artifact"
        coldsnap.capture(self.tensors, path, backend="buffered")
        return path

    def admitted(self, path: pathlib.Path | None = None) -> pathlib.Path:
        """The artifact at ``path``, else a new one, verified in full, with a marker; restored once without digests."""
        path = path or self.captured()
        coldsnap.verify(path, admit=True)
        assert self.restore(path, "buffered", "none").bytes == "restored"
        return path

    def marker(self, path: pathlib.Path) -> pathlib.Path:
        with coldsnap.open(path) as artifact:
            return self.trust / f"{artifact.native.manifest_sha256}.json"

    def restore(self, path: pathlib.Path, backend: str, verify: str) -> Outcome:
        """Restore as `user`."""
        if self.user == os.geteuid():
            return self._restore(path, backend, verify)
        return as_user(self.user, lambda: self._restore(path, backend, verify))

    def _restore(self, path: pathlib.Path, backend: str, verify: str) -> Outcome:
        found = helpers.untouched_like(self.tensors)
        try:
            receipt = coldsnap.hydrate(path, found, backend=backend, verify=verify)
        except coldsnap.Error as failure:
            return Outcome(self._bytes_of(found), failure.code, str(failure))
        assert receipt.verify["mode"] == verify
        assert ("preverified" in helpers.codes(receipt)) == (verify == "none")
        return Outcome(self._bytes_of(found))

    def _bytes_of(self, found: helpers.Tensors) -> str:
        for word, value in (("untouched", UNTOUCHED), ("poisoned", POISON)):
            if helpers.every_byte_is(found, value):
                return word
        same = all(found[name].tobytes() == tensor.tobytes() for name, tensor in self.tensors.items())
        return "restored" if same else "wrong"

    def follow(self, message: str) -> int:
        """Do what a refusal says; gives the exit code of its last command, which verifies and admits."""
        first = _FIRST.search(message)
        if first is not None:
            follow_command(*shlex.split(first[0]))
        elif _OTHER_FOLDER in message:
            self.setenv("COLDSNAP_TRUST_DIR", str(self.folder / "trust-of-my-own"))
        words = shlex.split(message.rpartition("run: ")[2])
        assert words[:3] == ["coldsnap", "verify", "--admit"], message
        if self.user == os.geteuid():
            return cli.main(words)
        return int(as_user(self.user, lambda: Outcome("", str(cli.main(words)))).code)


def follow_command(*command: str) -> None:
    """Run it; few machines have setfacl, so what that would do is done here."""
    if command[0] != "setfacl":
        run(*command)
        return
    for path in pathlib.Path(command[-1]).rglob("*"):
        if ACL in os.listxattr(path):
            os.removexattr(path, ACL)


def as_user(user: int, call: Callable[[], Outcome]) -> Outcome:
    """Call in a child that has given up all rights but those of ``user``.

    The child is a fork, since that user may not read this test's files to begin anew.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writing, json.dumps(call()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child of user {user} ended with {status}"
    return Outcome(*json.loads(answer))


def write_at(path: pathlib.Path, offset: int, data: bytes) -> None:
    """Write over a file that is read-only, in place."""
    with helpers.writable(path), path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def blob_of(artifact: pathlib.Path) -> pathlib.Path:
    """The file of the weights."""
    return helpers.file_of(artifact, "weights.safetensors")


def changed_bytes(artifact: pathlib.Path) -> tuple[int, bytes]:
    """Where a tensor begins in the blob, and other bytes than those that are there."""
    with coldsnap.open(artifact) as opened:
        offset = opened.native.data_start
    with blob_of(artifact).open("rb") as file:
        file.seek(offset)
        return offset, bytes(byte ^ 0x5A for byte in file.read(512))
