"""What may become of the file system below an admitted artifact, and of its clock."""

from __future__ import annotations

import os
import pathlib

import pytest

import coldsnap
from tests.trust.cases import POISONED, case
from tests.trust.file_cases import damage, with_times_of
from tests.trust.file_systems import Image, bind, mount, needs_uuids, overlay, unmount
from tests.trust.place import Place, blob_of, changed_bytes, run, run_or_skip

_FUTURE_NS = 4_000_000_000_000_000_000  # in the year 2096; what can't hold it takes the last second that it can
_FIELD = "set_inode_field /artifact/shard-00-00-00/weights.safetensors"


def device_of(artifact: pathlib.Path) -> int:
    return blob_of(artifact).stat().st_dev


def remounted(at: Place, kind: str) -> pathlib.Path:
    """An artifact that was admitted on an image, which has another device number since."""
    image = Image(at, kind)
    artifact = at.admitted(at.captured(image.on / "artifact"))
    before = device_of(artifact)
    image.mount_by_another_device()
    assert device_of(artifact) != before
    return artifact


@case()
def ext4_mounted_again(at: Place) -> pathlib.Path:
    """Its file system, ext4, was mounted again under another device number."""
    return remounted(at, "ext4")


@case()
def xfs_mounted_again(at: Place) -> pathlib.Path:
    """Its file system, xfs, was mounted again under another device number."""
    return remounted(at, "xfs")


@case("fs_uuid is")
def another_uuid(at: Place) -> pathlib.Path:
    """Its file system was given another UUID."""
    needs_uuids(at)
    image = Image(at, "ext4")
    artifact = at.admitted(at.captured(image.on / "artifact"))
    image.unmount()
    run_or_skip("tune2fs", "-f", "-U", "11111111-2222-3333-4444-555555555555", str(image.path))
    image.mount()
    return artifact


@case()
def mounted_elsewhere(at: Place) -> pathlib.Path:
    """It is reached through a bind mount."""
    return bind(at, at.admitted(), at.folder / "bound", read_only=False)


def open_modes(artifact: pathlib.Path) -> None:
    """Let anybody write to all of it."""
    for path in (artifact, *artifact.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)


def with_open_modes(at: Place) -> pathlib.Path:
    """An artifact that anybody may write to, admitted through a read-only bind mount: the mount."""
    artifact = at.captured()
    open_modes(artifact)
    return at.admitted(bind(at, artifact, at.folder / "read-only", read_only=True))


@case()
def read_only_mount(at: Place) -> pathlib.Path:
    """Anybody may write to all of it by its modes, and it is mounted read-only."""
    return with_open_modes(at)


@case()
def read_only_file_system(at: Place) -> pathlib.Path:
    """Anybody may write to all of it by its modes, and its file system was mounted read-only and then again."""
    image = Image(at, "ext4")
    artifact = at.captured(image.on / "artifact")
    open_modes(artifact)
    for _ in range(2):
        image.unmount()
        image.mount("-o", "ro")
        if not at.trust.exists():
            at.admitted(artifact)
    return artifact


@case("anybody may write to its weights.safetensors", "chmod -R go-w", "or mount it read-only")
def no_longer_read_only(at: Place) -> pathlib.Path:
    """Such modes, admitted through a read-only mount, and the mount was made writable."""
    mounted = with_open_modes(at)
    run("mount", "-o", "remount,bind,rw", str(mounted))
    return mounted


@case()
def lower_layer(at: Place) -> pathlib.Path:
    """It lies in the lower layer of an overlay without an upper one, mounted again."""
    return remounted_overlay(at, None, None, "")


@case()
def same_upper_layer(at: Place) -> pathlib.Path:
    """It lies in the lower layer of an overlay, mounted again with the same upper layer."""
    return remounted_overlay(at, "upper", "upper", "")


@case()
def overlay_without_uuid(at: Place) -> pathlib.Path:
    """The same, with another upper layer, where an overlay has no UUID: before Linux 6.9, or mounted with `uuid=null`."""
    return remounted_overlay(at, "upper", "another", ",uuid=null")


@case("fs_uuid is")
def another_upper_layer(at: Place) -> pathlib.Path:
    """The same, with another upper layer, where each upper layer brings a UUID: a new container of the same image."""
    needs_uuids(at)
    return remounted_overlay(at, "upper", "another", ",uuid=on")


def layers(at: Place) -> pathlib.Path:
    """A file system for an overlay's layers: the folder of a test may be in an overlay itself."""
    return mount(at, at.folder / "layers", "-t", "tmpfs", "layers")


def remounted_overlay(at: Place, upper: str | None, then: str | None, options: str) -> pathlib.Path:
    """An artifact admitted in an overlay, which was mounted again since."""
    below = layers(at)
    lower = at.captured(below / "artifact")
    on = at.admitted(overlay(at, lower, at.folder / "seen", upper and below / upper, options))
    unmount(on)
    return overlay(at, lower, on, then and below / then, options)


@case("mtime_ns is", "ctime_ns is", digests=POISONED)
def copied_up(at: Place) -> pathlib.Path:
    """Other bytes were written into it through the overlay, which copies the blob into the upper layer."""
    artifact = remounted_overlay(at, "upper", "upper", "")
    damage(artifact)
    return artifact


@case("fs_type is overlay and in the marker")
def seen_through_an_overlay(at: Place) -> pathlib.Path:
    """It was admitted where it lies, and is restored through an overlay."""
    return overlay(at, at.admitted(at.captured(layers(at) / "artifact")), at.folder / "seen", None)


@case()
def modified_in_the_future(at: Place) -> pathlib.Path:
    """The blob's mtime was in the future when it was verified."""
    artifact = at.captured()
    os.utime(blob_of(artifact), ns=(_FUTURE_NS, _FUTURE_NS))
    return at.admitted(artifact)


def from_the_future(at: Place) -> tuple[Image, pathlib.Path]:
    """An artifact whose blob was last changed in the future: the clock was set back before it was admitted."""
    image = Image(at, "ext4")
    artifact = at.captured(image.on / "artifact")
    image.edit(*(f"{_FIELD} {name} 20960101000000" for name in ("mtime", "ctime")))
    if blob_of(artifact).stat().st_ctime_ns < 3_900_000_000_000_000_000:
        pytest.skip("this debugfs writes no times beyond 2038")
    return image, at.admitted(artifact)


@case()
def clock_set_back(at: Place) -> pathlib.Path:
    """The clock was set back before the verification: the blob's mtime and ctime were in the future."""
    _, artifact = from_the_future(at)
    return artifact


@case("state of it: ctime_ns is", digests=POISONED)
def clock_set_back_and_written(at: Place) -> pathlib.Path:
    """The same, and then other bytes were written and the mtime set back."""
    _, artifact = from_the_future(at)
    before = blob_of(artifact).stat()
    damage(artifact)
    with_times_of(blob_of(artifact), before)
    return artifact


@case("state of it: mtime_ns is", "ctime_ns is")
def times_set_back(at: Place) -> pathlib.Path:
    """A backup was put back below the file system: the same bytes, and times before the verification."""
    image, artifact = from_the_future(at)
    image.edit(*(f"{_FIELD} {name} 20200101000000" for name in ("mtime", "ctime")))
    return artifact


@case("ctime_ns is", digests=POISONED)
def whole_seconds(at: Place) -> pathlib.Path:
    """Other bytes were written right after the verification and the mtime set back, in a file system of whole seconds."""
    artifact = at.captured(Image(at, "coarse").on / "artifact")
    coldsnap.verify(artifact, admit=True)
    before = blob_of(artifact).stat()
    damage(artifact)
    with_times_of(blob_of(artifact), before)
    return artifact


@case(digests=POISONED, wrong=True)
def changed_below(at: Place) -> pathlib.Path:
    """Other bytes were written to the drive below the file system, which has no trace of it."""
    image = Image(at, "ext4")
    artifact = at.admitted(at.captured(image.on / "artifact"))
    offset, data = changed_bytes(artifact)
    pattern = blob_of(artifact).read_bytes()[offset : offset + len(data)]
    image.unmount()
    raw = image.path.read_bytes()
    assert raw.count(pattern) == 1
    with image.path.open("r+b") as file:
        file.seek(raw.index(pattern))
        file.write(data)
    image.mount()
    return artifact
