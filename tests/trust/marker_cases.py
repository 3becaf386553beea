"""What may become of a trust marker, and whose it may be."""

from __future__ import annotations

import json
import os
import pathlib

import coldsnap
from tests.api import helpers
from tests.trust.cases import case
from tests.trust.file_cases import give
from tests.trust.file_systems import reachable
from tests.trust.place import SOMEBODY, Outcome, Place, as_user


def edit(marker: pathlib.Path, **changed: object) -> None:
    """Give some of the marker's fields other values."""
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **changed}))


@case("there is no trust marker")
def marker_removed(at: Place) -> pathlib.Path:
    """The marker was removed."""
    artifact = at.admitted()
    at.marker(artifact).unlink()
    return artifact


@case("is damaged")
def marker_cut_short(at: Place) -> pathlib.Path:
    """The marker was cut short."""
    artifact = at.admitted()
    os.truncate(at.marker(artifact), 100)
    return artifact


@case("manifest_sha256 is", "shard_root is", "inode is")
def marker_of_another_artifact(at: Place) -> pathlib.Path:
    """The marker is that of another artifact, under this one's name."""
    artifact = at.admitted()
    coldsnap.capture({"other": helpers.random_bytes(100)}, at.folder / "other", backend="buffered")
    coldsnap.verify(at.folder / "other", admit=True)
    at.marker(at.folder / "other").rename(at.marker(artifact))
    return artifact


@case("inode is", "ctime_ns is")
def marker_of_a_copy(at: Place) -> pathlib.Path:
    """A copy of the artifact was admitted later, and one manifest has one marker."""
    artifact = at.admitted()
    at.admitted(at.captured(at.folder / "copy"))
    return artifact


@case("others may write to it (mode 0620)", "; rm ")
def marker_writable(at: Place) -> pathlib.Path:
    """Its group may write to the marker."""
    artifact = at.admitted()
    at.marker(artifact).chmod(0o620)
    return artifact


@case("it is a link", "; rm ")
def marker_linked(at: Place) -> pathlib.Path:
    """The marker is a symbolic link."""
    artifact = at.admitted()
    marker = at.marker(artifact)
    marker.rename(at.folder / "real")
    marker.symlink_to(at.folder / "real")
    return artifact


@case(f"it belongs to user {SOMEBODY}", "; rm ")
def marker_of_another_user(at: Place) -> pathlib.Path:
    """The marker belongs to another user."""
    artifact = at.admitted()
    give(at.marker(artifact), SOMEBODY, -1)
    return artifact


@case("others may write to it (mode 0777)", "chmod go-w")
def trust_folder_writable(at: Place) -> pathlib.Path:
    """Anybody may write to the trust folder."""
    artifact = at.admitted()
    at.trust.chmod(0o777)
    return artifact


def admit_as(user: int, path: pathlib.Path) -> None:
    """Verify and admit as another user."""
    done = as_user(user, lambda: Outcome(str(coldsnap.verify(path, admit=True).reasons)))
    assert "admitted" in done.bytes


@case(f"it belongs to user {SOMEBODY}", "let COLDSNAP_TRUST_DIR name")
def admitted_by_another_user(at: Place) -> pathlib.Path:
    """Another user verified and admitted it, into the trust folder that root reads."""
    reachable(at)
    artifact = at.captured()
    admit_as(SOMEBODY, artifact)
    return artifact


@case("Permission denied", "let COLDSNAP_TRUST_DIR name")
def restored_by_another_user(at: Place) -> pathlib.Path:
    """Another user restores it, who may not read root's trust folder."""
    reachable(at)
    artifact = at.admitted()
    at.user = SOMEBODY
    return artifact


@case()
def marker_of_root(at: Place) -> pathlib.Path:
    """Another user restores it, who may read root's trust folder and marker."""
    artifact = restored_by_another_user(at)
    at.trust.chmod(0o755)
    at.marker(artifact).chmod(0o644)
    return artifact


@case()
def marker_of_ones_own(at: Place) -> pathlib.Path:
    """Root captured it, and the user who restores it verified and admitted it."""
    reachable(at)
    artifact = at.captured()
    admit_as(SOMEBODY, artifact)
    at.user = SOMEBODY
    return artifact


@case()
def marker_from_the_future(at: Place) -> pathlib.Path:
    """The marker was written by a clock that was ahead."""
    artifact = at.admitted()
    edit(at.marker(artifact), written_at="2099-01-01T00:00:00+00:00")
    return artifact


@case()
def started_again(at: Place) -> pathlib.Path:
    """The machine was started again: another boot id, another device number."""
    artifact = at.admitted()
    edit(at.marker(artifact), noted={"device": "0:1", "boot_id": "00000000-0000-0000-0000-000000000000"})
    return artifact
