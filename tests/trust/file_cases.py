"""What may become of an admitted artifact's files, and of copies of it, on one file system."""

from __future__ import annotations

import mmap
import os
import pathlib
import shutil
import struct

import pytest

import coldsnap
from coldsnap import packing
from tests.trust.cases import POISONED, UNTOUCHED, case
from tests.trust.place import ACL, GROUP, SOMEBODY, Place, blob_of, changed_bytes, run, write_at


def give(path: pathlib.Path, user: int, group: int) -> None:
    """Change the owner, or skip with the reason."""
    try:
        os.chown(path, user, group)
    except OSError as cause:  # not root, or root of a namespace that has no such user
        pytest.skip(f"a file can't be given to user {user} and group {group} here: {cause.strerror}")


def with_times_of(path: pathlib.Path, before: os.stat_result) -> None:
    """Set back what can be set."""
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def damage(artifact: pathlib.Path) -> None:
    """Write other bytes into the blob, in place, and set back its mode."""
    write_at(blob_of(artifact), *changed_bytes(artifact))


@case()
def untouched(at: Place) -> pathlib.Path:
    """Nothing happened."""
    return at.admitted()


@case()
def folder_renamed(at: Place) -> pathlib.Path:
    """The artifact's folder was moved on its file system."""
    return at.admitted().rename(at.folder / "moved")


@case("inode is")
def replaced_by_the_same(at: Place) -> pathlib.Path:
    """A file with the same bytes and times was renamed into the blob's place."""
    artifact = at.admitted()
    shutil.copy2(blob_of(artifact), at.folder / "same")
    (at.folder / "same").rename(blob_of(artifact))
    return artifact


@case("inode is", digests=POISONED)
def replaced_by_another(at: Place) -> pathlib.Path:
    """The same, with other bytes."""
    artifact = at.admitted()
    blob, other = blob_of(artifact), at.folder / "other"
    shutil.copy2(blob, other)
    write_at(other, *changed_bytes(artifact))
    with_times_of(other, blob.stat())
    other.rename(blob)
    return artifact


@case("weights.safetensors", "links inside an artifact", digests=UNTOUCHED, code="io")
def replaced_by_a_link(at: Place) -> pathlib.Path:
    """A symbolic link to the very file stands in the blob's place."""
    artifact = at.admitted()
    blob_of(artifact).rename(at.folder / "real")
    blob_of(artifact).symlink_to(at.folder / "real")
    return artifact


@case("weights.safetensors", digests=UNTOUCHED, code="format_invalid")
def replaced_by_a_pipe(at: Place) -> pathlib.Path:
    """A named pipe stands in the blob's place."""
    artifact = at.admitted()
    blob_of(artifact).unlink()
    os.mkfifo(blob_of(artifact))
    return artifact


@case("weights.safetensors", digests=UNTOUCHED, code="data_loss")
def truncated(at: Place) -> pathlib.Path:
    """The blob was cut short."""
    artifact = at.admitted()
    os.truncate(blob_of(artifact), blob_of(artifact).stat().st_size // 2)
    return artifact


@case("weights.safetensors", digests=UNTOUCHED, code="data_loss")
def grown(at: Place) -> pathlib.Path:
    """A byte was appended to the blob."""
    artifact = at.admitted()
    os.truncate(blob_of(artifact), blob_of(artifact).stat().st_size + 1)
    return artifact


@case("mtime_ns is", "ctime_ns is", digests=POISONED)
def truncated_and_filled(at: Place) -> pathlib.Path:
    """The blob was cut short and made as long again."""
    artifact = at.admitted()
    nbytes = blob_of(artifact).stat().st_size
    os.truncate(blob_of(artifact), nbytes // 2)
    os.truncate(blob_of(artifact), nbytes)
    return artifact


@case("mtime_ns is", "ctime_ns is")
def touched(at: Place) -> pathlib.Path:
    """The blob was touched."""
    artifact = at.admitted()
    os.utime(blob_of(artifact))
    return artifact


@case("state of it: ctime_ns is")
def touched_and_set_back(at: Place) -> pathlib.Path:
    """The blob was touched and its mtime set back."""
    artifact = at.admitted()
    before = blob_of(artifact).stat()
    os.utime(blob_of(artifact))
    with_times_of(blob_of(artifact), before)
    return artifact


@case("state of it: ctime_ns is", digests=POISONED)
def written_and_set_back(at: Place) -> pathlib.Path:
    """Other bytes were written into the blob and its mtime set back."""
    artifact = at.admitted()
    before = blob_of(artifact).stat()
    damage(artifact)
    with_times_of(blob_of(artifact), before)
    return artifact


@case("mtime_ns is", "ctime_ns is", digests=POISONED)
def written_through_a_mapping(at: Place) -> pathlib.Path:
    """Other bytes were stored through a mapping of the blob that was there before the verification."""
    artifact = at.captured()
    blob_of(artifact).chmod(0o644)
    with blob_of(artifact).open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        blob_of(artifact).chmod(0o444)
        offset, data = changed_bytes(artifact)
        mapping[offset : offset + 1] = mapping[offset : offset + 1]  # the page is dirty, and its time stamps are old
        at.admitted(artifact)
        mapping[offset : offset + len(data)] = data
    return artifact


@case("state of it: ctime_ns is")
def given_away(at: Place) -> pathlib.Path:
    """The blob has another owner."""
    artifact = at.admitted()
    give(blob_of(artifact), SOMEBODY, -1)
    return artifact


@case("state of it: ctime_ns is")
def mode_changed(at: Place) -> pathlib.Path:
    """The blob has another mode, without rights for others."""
    artifact = at.admitted()
    blob_of(artifact).chmod(0o400)
    return artifact


@case("state of it: ctime_ns is")
def linked(at: Place) -> pathlib.Path:
    """The blob was linked elsewhere."""
    artifact = at.admitted()
    os.link(blob_of(artifact), at.folder / "link")
    return artifact


@case("mtime_ns is", "ctime_ns is", digests=POISONED)
def changed_through_a_link(at: Place) -> pathlib.Path:
    """Other bytes were written through a hard link that was there before the verification."""
    artifact = at.captured()
    os.link(blob_of(artifact), at.folder / "link")
    at.admitted(artifact)
    write_at(at.folder / "link", *changed_bytes(artifact))
    return artifact


@case("may write to its weights.safetensors", "chmod -R go-w", "COLDSNAP_TRUST_GROUP=")
def writable_for_its_group(at: Place) -> pathlib.Path:
    """The blob's group may write to it."""
    artifact = at.admitted()
    blob_of(artifact).chmod(0o464)
    return artifact


@case("anybody may write to its folder", "chmod -R go-w")
def folder_writable_for_all(at: Place) -> pathlib.Path:
    """Anybody may write to the artifact's folder."""
    artifact = at.admitted()
    artifact.chmod(0o777)
    return artifact


def of_a_pod(at: Place) -> pathlib.Path:
    """An artifact as on a volume with an fsGroup: setgid folders, and files that the group may write."""
    artifact = at.captured()
    for path in (artifact, *artifact.rglob("*")):
        give(path, -1, GROUP)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    at.setenv("COLDSNAP_TRUST_GROUP", str(GROUP))
    return artifact


@case()
def group_of_a_pod(at: Place) -> pathlib.Path:
    """Folders of mode 2775 and files of mode 0664, as an fsGroup makes them, and `COLDSNAP_TRUST_GROUP` names the group."""
    return at.admitted(of_a_pod(at))


@case(f"group {GROUP} may write", "chmod -R go-w", f"COLDSNAP_TRUST_GROUP={GROUP}")
def group_without_its_variable(at: Place) -> pathlib.Path:
    """Such modes, and `COLDSNAP_TRUST_GROUP` is not set."""
    artifact = at.admitted(of_a_pod(at))
    at.setenv("COLDSNAP_TRUST_GROUP", None)
    return artifact


@case(f"group {GROUP} may write", "chmod -R go-w", f"COLDSNAP_TRUST_GROUP={GROUP}")
def group_with_another_variable(at: Place) -> pathlib.Path:
    """Such modes, and `COLDSNAP_TRUST_GROUP` names another group."""
    artifact = at.admitted(of_a_pod(at))
    at.setenv("COLDSNAP_TRUST_GROUP", str(GROUP + 1))
    return artifact


@case("anybody may write to its artifact.json", "chmod -R go-w")
def group_and_all(at: Place) -> pathlib.Path:
    """Such modes, `COLDSNAP_TRUST_GROUP` names the group, and anybody may write to `artifact.json`."""
    artifact = at.admitted(of_a_pod(at))
    (artifact / "artifact.json").chmod(0o666)
    return artifact


@case("access control list of its manifest.json", "setfacl -R -b")
def group_and_list(at: Place) -> pathlib.Path:
    """Such modes, `COLDSNAP_TRUST_GROUP` names the group, and an access control list lets one more user write."""
    artifact = at.admitted(of_a_pod(at))
    user, undefined = 0x02, 0xFFFFFFFF
    rights = (
        (0x01, 6, undefined),
        (user, 6, SOMEBODY),
        (0x04, 4, undefined),
        (0x10, 6, undefined),
        (0x20, 4, undefined),
    )
    encoded = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *right) for right in rights)
    try:
        os.setxattr(artifact / "shard-00-00-00" / "manifest.json", ACL, encoded)
    except OSError as cause:
        pytest.skip(f"access control lists: {cause.strerror}")
    return artifact


@case("inode is", "ctime_ns is")
def copied(at: Place) -> pathlib.Path:
    """A copy of the artifact, with all that `cp -a` keeps."""
    artifact = at.admitted()
    run("cp", "-a", str(artifact), str(at.folder / "copy"))
    return at.folder / "copy"


@case("inode is", "ctime_ns is")
def untarred(at: Place) -> pathlib.Path:
    """A copy out of a tar file, by `tar -p`."""
    artifact = at.admitted()
    (at.folder / "there").mkdir()
    run("tar", "-C", str(artifact.parent), "-cf", str(at.folder / "tar"), artifact.name)
    run("tar", "-C", str(at.folder / "there"), "-xpf", str(at.folder / "tar"))
    return at.folder / "there" / artifact.name


@case("inode is", "ctime_ns is")
def packed_and_unpacked(at: Place) -> pathlib.Path:
    """A copy in a store, by `coldsnap store pack` and `coldsnap store unpack`."""
    artifact = at.admitted()
    packing.pack(artifact, at.folder / "packed")
    return packing.unpack(at.folder / "packed", coldsnap.Store(at.folder / "store")).path
