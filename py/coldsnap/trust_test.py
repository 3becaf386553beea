"""Trust markers: what is admitted, and each single doubt that refuses."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, errors, mounts, state, tensors, trust

SHARD = "shard-00-00-00"
BLOB = f"{SHARD}/weights.safetensors"
SOMEBODY = 12345
OTHER_DIGEST = "5" * 64


def write(path: pathlib.Path, value: int = 1) -> pathlib.Path:
    weights = {"w": np.full(70_000, value, np.uint8), "b": np.full(100, value, np.uint8)}
    _native.write_artifact(str(path), tensors.native_specs(weights), "{}", "{}", "{}")
    return path


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "artifact")


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


@pytest.fixture
def artifact(path: pathlib.Path) -> Iterator[coldsnap.Artifact]:
    with coldsnap.open(path) as opened:
        yield opened


def admit(artifact: coldsnap.Artifact, environ: dict[str, str]) -> pathlib.Path:
    """Write the marker as a verification would; gives its path."""
    trust.write_marker(artifact, trust.facts_of(artifact), environ)
    return state.path_of(state.TRUST, environ) / f"{artifact.native.manifest_sha256}.json"


def edit(marker: pathlib.Path, **changed: Any) -> None:
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **changed}))


def refused(match: str) -> Any:
    return pytest.raises(errors.NotAdmittedError, match=match)


def test_a_file_that_passed_is_admitted(artifact: coldsnap.Artifact, environ: dict[str, str]) -> None:
    with refused(r"there is no trust marker .*\.json; run: coldsnap verify --admit /.*/artifact"):
        trust.check(artifact, environ)
    assert not pathlib.Path(environ["COLDSNAP_STATE_DIR"]).exists()  # looking makes nothing
    marker = admit(artifact, environ)
    assert marker.stat().st_mode & 0o777 == 0o600
    assert marker.parent.stat().st_mode & 0o777 == 0o700
    found = trust.check(artifact, environ)
    assert found.admitted
    assert artifact.native.manifest_sha256 in found.detail
    assert "/" not in found.detail
    trust.require_unchanged(artifact, found.facts)


def test_it_stays_admitted_when_opened_again(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]
) -> None:
    admit(artifact, environ)
    with coldsnap.open(path) as again:
        assert trust.check(again, environ).admitted
    path.rename(path.with_name("renamed"))  # the file is the same one
    with coldsnap.open(path.with_name("renamed")) as again:
        assert trust.check(again, environ).admitted


def test_a_marker_says_what_it_is_for(artifact: coldsnap.Artifact, environ: dict[str, str]) -> None:
    found = json.loads(admit(artifact, environ).read_text())
    info = os.fstat(artifact.native.blob_fd)
    assert found["format"] == 1
    assert found["manifest_sha256"] == artifact.native.manifest_sha256
    assert found["shard_root"] == artifact.native.shard_root
    assert found["blob_bytes"] == artifact.blob_bytes == info.st_size
    assert (found["inode"], found["mtime_ns"], found["ctime_ns"]) == tuple(
        map(str, (info.st_ino, info.st_mtime_ns, info.st_ctime_ns))
    )
    assert (found["fs_type"], found["fs_uuid"]) == mounts.of_descriptor(artifact.native.blob_fd)[:2]
    assert found["noted"]["device"] == f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"
    assert found["version"] == coldsnap.__version__
    assert found["written_at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("manifest_sha256", OTHER_DIGEST),
        ("shard_root", OTHER_DIGEST),
        ("blob_bytes", 1),
        ("inode", "1"),
        ("mtime_ns", "1"),
        ("ctime_ns", "1"),
        ("fs_type", "other"),
        ("fs_type", None),
        ("fs_uuid", "other"),
    ],
)
def test_each_field_that_differs_is_named_with_both_values(
    artifact: coldsnap.Artifact, environ: dict[str, str], field: str, value: Any
) -> None:
    marker = admit(artifact, environ)
    now = json.loads(marker.read_text())[field]
    edit(marker, **{field: value})
    with refused(f": {field} is {now} and in the marker {value}; run: coldsnap verify --admit "):
        trust.check(artifact, environ)


@pytest.mark.parametrize("noted", [{"device": "0:1"}, {"boot_id": "other"}, {"boot_id": None}])
def test_another_device_number_or_boot_is_no_doubt(
    artifact: coldsnap.Artifact, environ: dict[str, str], noted: dict[str, str]
) -> None:
    marker = admit(artifact, environ)
    edit(marker, noted={**json.loads(marker.read_text())["noted"], **noted})
    assert trust.check(artifact, environ).admitted


@pytest.mark.parametrize(
    ("system", "field"),
    [
        (mounts.FileSystem("xfs", "11-22", "/"), "fs_type is xfs and in the marker ext4"),
        (mounts.FileSystem("ext4", "33-44", "/"), "fs_uuid is 33-44 and in the marker 11-22"),
        (mounts.FileSystem("ext4", None, "/"), "fs_uuid is None and in the marker 11-22"),
    ],
)
def test_another_file_system_is_a_doubt(
    artifact: coldsnap.Artifact,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    system: mounts.FileSystem,
    field: str,
) -> None:
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: mounts.FileSystem("ext4", "11-22", "/elsewhere"))
    admit(artifact, environ)
    assert trust.check(artifact, environ).admitted
    monkeypatch.setattr(mounts, "of_descriptor", lambda fd: system)
    with refused(field):
        trust.check(artifact, environ)


def overwrite(blob: pathlib.Path) -> None:
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(70_000)
        file.write(b"x")
    blob.chmod(0o444)


def restore_the_time(blob: pathlib.Path) -> None:
    before = blob.stat()
    overwrite(blob)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (overwrite, "mtime_ns is"),
        (restore_the_time, ": ctime_ns is"),
        (lambda blob: blob.chmod(0o400), ": ctime_ns is"),
    ],
)
def test_a_change_in_place_is_a_doubt(
    artifact: coldsnap.Artifact,
    path: pathlib.Path,
    environ: dict[str, str],
    change: Callable[[pathlib.Path], None],
    field: str,
) -> None:
    admit(artifact, environ)
    facts = trust.check(artifact, environ).facts
    change(path / BLOB)
    with refused(field):
        trust.check(artifact, environ)
    with refused(r"its blob changed while it was read: .*ctime_ns is \d+ and was \d+; run: coldsnap verify --admit"):
        trust.require_unchanged(artifact, facts)


def test_a_file_put_in_its_place_does_not_change_what_is_open(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """The file was replaced between open and check: the marker is for the new one, the restore reads the old one."""
    shutil.copy2(path / BLOB, tmp_path / "copy")
    (tmp_path / "copy").rename(path / BLOB)
    with coldsnap.open(path) as replaced:
        admit(replaced, environ)
        assert trust.check(replaced, environ).admitted
    with refused("inode is"):
        trust.check(artifact, environ)


def test_a_copy_is_another_file(artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]) -> None:
    admit(artifact, environ)
    shutil.copytree(path, path.with_name("copy"))
    with coldsnap.open(path.with_name("copy")) as copy, refused("is for another file or another state of it: inode is"):
        trust.check(copy, environ)


def test_a_marker_of_another_artifact_says_nothing(
    artifact: coldsnap.Artifact, environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    with coldsnap.open(write(tmp_path / "other", 2)) as other:
        theirs = admit(other, environ)
    theirs.rename(theirs.with_name(f"{artifact.native.manifest_sha256}.json"))
    with refused(
        f"manifest_sha256 is {artifact.native.manifest_sha256} and in the marker {theirs.stem}, shard_root is"
    ):
        trust.check(artifact, environ)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda text: "", "Expecting value"),
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"format": 1', '"format": 2'), r"\$\.format is 2"),
        (lambda text: text.replace('"inode"', '"node"'), "has no 'inode'"),
        (lambda text: text.replace('"noted"', '"more": 1, "noted"'), "unknown key 'more'"),
        (lambda text: text.replace('"noted"', '"format": 1, "noted"'), "a key stands twice"),
        (lambda text: " " * (1 << 20), "more than 65536 bytes"),
    ],
)
def test_a_damaged_marker_is_a_doubt(
    artifact: coldsnap.Artifact, environ: dict[str, str], damage: Callable[[str], str], what: str
) -> None:
    marker = admit(artifact, environ)
    marker.write_text(damage(marker.read_text()))
    with refused(what):
        trust.check(artifact, environ)
    marker.unlink()
    admit(artifact, environ)
    assert trust.check(artifact, environ).admitted


def test_a_marker_that_somebody_else_could_write_is_a_doubt(
    artifact: coldsnap.Artifact, environ: dict[str, str]
) -> None:
    marker = admit(artifact, environ)
    marker.chmod(0o620)
    with refused(r"others may write to it \(mode 0620\)"):
        trust.check(artifact, environ)
    marker.chmod(0o600)
    marker.parent.chmod(0o777)
    with refused(r"the folder .*trust: others may write to it \(mode 0777\); chmod go-w"):
        trust.check(artifact, environ)
    marker.parent.chmod(0o700)
    marker.rename(marker.with_suffix(".real"))
    marker.symlink_to(marker.with_suffix(".real"))
    with refused("it is a link"):
        trust.check(artifact, environ)


def test_a_marker_of_somebody_else_is_a_doubt(artifact: coldsnap.Artifact, environ: dict[str, str]) -> None:
    marker = admit(artifact, environ)
    try:
        os.chown(marker, SOMEBODY, SOMEBODY)
    except OSError as cause:  # not root, or root of a namespace that has no such user
        pytest.skip(f"a file can't be given to user {SOMEBODY} here: {cause.strerror}")
    with refused(f"it belongs to user {SOMEBODY}"):
        trust.check(artifact, environ)


ENTRIES = ["weights.safetensors", "manifest.json", "leaves.bin", SHARD, "folder", "artifact.json"]


def entry_of(path: pathlib.Path, name: str) -> pathlib.Path:
    return {"folder": path, "artifact.json": path / name, SHARD: path / SHARD}.get(name, path / SHARD / name)


@pytest.mark.parametrize("name", ENTRIES)
def test_what_a_group_may_write_needs_its_name(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str], name: str
) -> None:
    entry = entry_of(path, name)
    entry.chmod(0o775)
    group = entry.stat().st_gid
    what = rf"group {group} may write to its {name} \(mode 0775\); chmod -R go-w .* COLDSNAP_TRUST_GROUP={group}, then"
    for groups in ({}, {"COLDSNAP_TRUST_GROUP": str(group + 1)}):
        with refused(what):
            admit(artifact, {**environ, **groups})
        with refused(what):
            trust.check(artifact, {**environ, **groups})
    environ["COLDSNAP_TRUST_GROUP"] = str(group)
    admit(artifact, environ)
    assert trust.check(artifact, environ).admitted
    for mode in ("0777", "0757"):
        entry.chmod(int(mode, 8))
        with refused(
            rf"anybody may write to its {name} \(mode {mode}\); chmod -R go-w {path}, or mount it read-only, then"
        ):
            trust.check(artifact, environ)


@pytest.mark.parametrize("group", ["staff", "-1", "4294967295", "1" * 11, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_what_is_no_group_is_refused(artifact: coldsnap.Artifact, environ: dict[str, str], group: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match=f"read COLDSNAP_TRUST_GROUP: '{group}' is no group"):
        trust.check(artifact, {**environ, "COLDSNAP_TRUST_GROUP": group})


@contextlib.contextmanager
def mounted_read_only(path: pathlib.Path, on: pathlib.Path) -> Iterator[None]:
    on.mkdir()
    for step in (["--bind", str(path), str(on)], ["-o", "remount,bind,ro", str(on)]):
        done = subprocess.run(["mount", *step], capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["umount", str(on)], capture_output=True, check=False)
            pytest.skip(f"a read-only mount can't be made here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(on)], check=True)


def test_a_read_only_mount_needs_no_modes(path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    for entry in (path, path / SHARD, path / BLOB):
        entry.chmod(0o777)
    with mounted_read_only(path, tmp_path / "mounted"):
        with coldsnap.open(tmp_path / "mounted") as artifact:
            admit(artifact, environ)
            assert trust.check(artifact, environ).admitted
        with coldsnap.open(path) as writable, refused("anybody may write to its weights.safetensors"):
            trust.check(writable, environ)


def test_a_pin_of_other_manifests_refuses_everything(artifact: coldsnap.Artifact, environ: dict[str, str]) -> None:
    admit(artifact, environ)
    pinned = {**environ, "COLDSNAP_TRUST_MANIFEST": OTHER_DIGEST}
    what = f"has the SHA-256 {artifact.native.manifest_sha256}, and COLDSNAP_TRUST_MANIFEST allows only {OTHER_DIGEST}"
    for call in (trust.check, trust.require_pin, trust.require_admissible, admit):
        with pytest.raises(errors.PolicyRefusedError, match=what):
            call(artifact, pinned)


def test_a_pinned_artifact_without_a_marker_is_to_be_verified_first(
    artifact: coldsnap.Artifact, environ: dict[str, str]
) -> None:
    mine = artifact.native.manifest_sha256
    environ["COLDSNAP_TRUST_MANIFEST"] = f"{OTHER_DIGEST}, {mine}"
    first = trust.check(artifact, environ)
    assert not first.admitted
    assert first.detail.endswith("no trust marker here is for this very file: to be verified in full")
    trust.write_marker(artifact, first.facts, environ)
    assert trust.check(artifact, environ).admitted


def test_a_pin_does_not_make_up_for_a_marker_of_another_file(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]
) -> None:
    environ["COLDSNAP_TRUST_MANIFEST"] = artifact.native.manifest_sha256
    admit(artifact, environ)
    overwrite(path / BLOB)
    assert not trust.check(artifact, environ).admitted
    (path / BLOB).chmod(0o666)
    found = trust.check(artifact, environ)
    assert not found.admitted
    with refused("anybody may write"):
        trust.write_marker(artifact, found.facts, environ)


@pytest.mark.parametrize("pins", ["x", "A" * 64, "5" * 63, f"{OTHER_DIGEST},", ","])
def test_what_is_no_pin_is_refused(artifact: coldsnap.Artifact, environ: dict[str, str], pins: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match=r"read COLDSNAP_TRUST_MANIFEST: '.*' is no SHA-256"):
        trust.require_pin(artifact, {**environ, "COLDSNAP_TRUST_MANIFEST": pins})


def test_without_pins_everything_may_be_opened(artifact: coldsnap.Artifact) -> None:
    assert not trust.require_pin(artifact, {})
    assert not trust.require_pin(artifact, {"COLDSNAP_TRUST_MANIFEST": ""})
    assert trust.require_pin(artifact, {"COLDSNAP_TRUST_MANIFEST": artifact.native.manifest_sha256})


def test_no_marker_for_a_file_that_changed_while_it_was_read(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]
) -> None:
    before = trust.facts_of(artifact)
    overwrite(path / BLOB)
    with refused(r"its blob changed while it was read: mtime_ns is \d+ and was \d+, ctime_ns is"):
        trust.write_marker(artifact, before, environ)
    assert list(state.path_of(state.TRUST, environ).iterdir()) == []


def test_a_change_within_one_tick_of_the_clock_is_waited_out(
    artifact: coldsnap.Artifact, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    changed = os.fstat(artifact.native.blob_fd).st_ctime
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "time", lambda: changed + 0.001 + sum(waited))
    trust.facts_of(artifact)
    assert waited == [0.02]
    monkeypatch.setattr(time, "time", lambda: changed - 5.0)  # a clock that was set back must not stop anybody
    trust.facts_of(artifact)
    assert waited == [0.02]


def test_whole_seconds_are_waited_out(artifact: coldsnap.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file system that keeps nothing finer; also by a clock that was set back a little."""
    info = os.fstat(artifact.native.blob_fd)
    second = info.st_ctime_ns // 10**9
    coarse = os.stat_result((*info[:9], second), {"st_ctime": float(second), "st_ctime_ns": second * 10**9})
    now = [second + 0.3]
    monkeypatch.setattr(os, "fstat", lambda fd: coarse)
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    for begin in (0.3, -0.3):
        now[0] = second + begin
        trust.facts_of(artifact)
        assert 2.0 <= now[0] - second < 2.1


def test_no_marker_lies_inside_the_artifact(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "way").symlink_to(path)
    for inside in (path, path / "trust", tmp_path / "way" / "trust"):
        environ["COLDSNAP_TRUST_DIR"] = str(inside)
        with pytest.raises(
            errors.PolicyRefusedError, match=r"is inside it.*let COLDSNAP_TRUST_DIR name another folder"
        ):
            admit(artifact, environ)
    assert sorted(entry.name for entry in path.iterdir()) == ["artifact.json", SHARD]
    environ["COLDSNAP_TRUST_DIR"] = f"{path}-trust"
    admit(artifact, environ)


def test_a_file_that_turned_out_wrong_loses_its_marker(
    artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]
) -> None:
    assert not trust.revoke(artifact, environ)
    marker = admit(artifact, environ)
    shutil.copytree(path, path.with_name("copy"))
    with coldsnap.open(path.with_name("copy")) as copy:
        assert not trust.revoke(copy, environ)  # the marker is not its own
    assert trust.check(artifact, environ).admitted
    assert trust.revoke(artifact, environ)
    assert not marker.exists()


def test_a_file_that_is_gone_is_said(artifact: coldsnap.Artifact, path: pathlib.Path, environ: dict[str, str]) -> None:
    admit(artifact, environ)
    (path / SHARD / "leaves.bin").unlink()
    with pytest.raises(errors.IoError, match=r"look who may write to artifact .*: No such file"):
        trust.check(artifact, environ)
