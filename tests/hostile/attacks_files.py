"""Attacks on what stands where: files that are missing, short, long, or no files; links out of the artifact."""

from __future__ import annotations

import os
import shutil
import socket
import stat

from tests.format.helpers import SHARD
from tests.hostile.forge import FILES, Forgery, attack


@attack
def no_artifact_json(f: Forgery) -> None:
    f.path("artifact.json").unlink()


@attack
def artifact_json_first(f: Forgery) -> None:
    shutil.rmtree(f.folder / SHARD)


@attack
def blob_not_yet_there(f: Forgery) -> None:
    f.path("weights.safetensors").unlink()


@attack
def leaves_not_yet_there(f: Forgery) -> None:
    f.path("leaves.bin").unlink()


@attack
def manifest_not_yet_there(f: Forgery) -> None:
    f.path("manifest.json").unlink()


@attack
def second_shard_not_yet_there(f: Forgery) -> None:
    f.artifact["shards"].append({**f.record, "name": "shard-00-01-00"})
    f.seal()


@attack
def blob_half_copied(f: Forgery) -> None:
    f.resize("weights.safetensors", f.manifest["blob_bytes"] // 2)


@attack
def leaves_half_copied(f: Forgery) -> None:
    f.resize("leaves.bin", 32)


@attack
def manifest_half_copied(f: Forgery) -> None:
    f.resize("manifest.json", 300)


@attack
def artifact_json_half_copied(f: Forgery) -> None:
    f.put("artifact.json", f.path("artifact.json").read_bytes()[:200])


@attack
def empty_blob(f: Forgery) -> None:
    f.put("weights.safetensors", b"")


@attack
def empty_leaves(f: Forgery) -> None:
    f.put("leaves.bin", b"")


@attack
def empty_manifest(f: Forgery) -> None:
    f.put("manifest.json", b"")


@attack
def empty_artifact_json(f: Forgery) -> None:
    f.put("artifact.json", b"")


@attack
def everything_empty_and_said_so(f: Forgery) -> None:
    for name in FILES:
        f.put(name, b"")
    f.seal(manifest=lambda _: b"")


@attack
def blob_with_trailing_bytes(f: Forgery) -> None:
    f.put("weights.safetensors", f.path("weights.safetensors").read_bytes() + b"\0")


@attack
def leaves_with_trailing_bytes(f: Forgery) -> None:
    f.put("leaves.bin", f.path("leaves.bin").read_bytes() + b"\0")


@attack
def blob_as_long_as_a_drive(f: Forgery) -> None:
    f.resize("weights.safetensors", 1 << 40)


@attack
def artifact_json_past_its_bound(f: Forgery) -> None:
    f.resize("artifact.json", 1 << 40)


@attack
def manifest_past_its_bound(f: Forgery) -> None:
    f.resize("manifest.json", 1 << 40)
    f.record["manifest_bytes"] = 1 << 40
    sealed = f.path("manifest.json").rename(f.folder / "aside")
    f.path("manifest.json").touch()
    f.seal(keep=("manifest_bytes", "manifest_sha256"))
    sealed.rename(f.path("manifest.json"))


def _linked(f: Forgery, name: str) -> None:
    target = f.path(name).rename(f.folder.parent / f"outside-{f.path(name).name}")
    f.path(name).symlink_to(target)


@attack
def link_for_artifact_json(f: Forgery) -> None:
    _linked(f, "artifact.json")


@attack
def link_for_the_blob(f: Forgery) -> None:
    _linked(f, "weights.safetensors")


@attack
def link_for_leaves(f: Forgery) -> None:
    _linked(f, "leaves.bin")


@attack
def link_for_the_manifest(f: Forgery) -> None:
    _linked(f, "manifest.json")


@attack
def link_for_the_shard(f: Forgery) -> None:
    target = (f.folder / SHARD).rename(f.folder.parent / "outside-shard")
    (f.folder / SHARD).symlink_to(target)


@attack
def link_to_itself(f: Forgery) -> None:
    f.path("weights.safetensors").unlink()
    f.path("weights.safetensors").symlink_to("weights.safetensors")


@attack
def link_to_nothing(f: Forgery) -> None:
    f.path("weights.safetensors").unlink()
    f.path("weights.safetensors").symlink_to("/nothing/is/here")


@attack
def link_to_a_process_s_own_file(f: Forgery) -> None:
    f.path("manifest.json").unlink()
    f.path("manifest.json").symlink_to("/proc/self/environ")


def _fifo(f: Forgery, name: str) -> None:
    f.path(name).unlink()
    os.mkfifo(f.path(name))


@attack
def fifo_for_artifact_json(f: Forgery) -> None:
    _fifo(f, "artifact.json")


@attack
def fifo_for_the_blob(f: Forgery) -> None:
    _fifo(f, "weights.safetensors")


@attack
def fifo_for_leaves(f: Forgery) -> None:
    _fifo(f, "leaves.bin")


@attack
def fifo_for_the_manifest(f: Forgery) -> None:
    _fifo(f, "manifest.json")


@attack
def socket_for_the_blob(f: Forgery) -> None:
    f.path("weights.safetensors").unlink()
    at = os.getcwd()
    os.chdir(f.folder / SHARD)  # a socket's path is at most 107 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("weights.safetensors")
    finally:
        os.chdir(at)


@attack
def device_for_the_blob(f: Forgery) -> None:
    """/dev/zero, which gives bytes without end."""
    f.path("weights.safetensors").unlink()
    os.mknod(f.path("weights.safetensors"), 0o644 | stat.S_IFCHR, os.makedev(1, 5))


@attack
def device_for_artifact_json(f: Forgery) -> None:
    f.path("artifact.json").unlink()
    os.mknod(f.path("artifact.json"), 0o644 | stat.S_IFCHR, os.makedev(1, 5))


@attack
def folder_for_the_blob(f: Forgery) -> None:
    f.path("weights.safetensors").unlink()
    f.path("weights.safetensors").mkdir()


@attack
def folder_for_artifact_json(f: Forgery) -> None:
    f.path("artifact.json").unlink()
    f.path("artifact.json").mkdir()


@attack
def file_for_the_shard(f: Forgery) -> None:
    shutil.rmtree(f.folder / SHARD)
    (f.folder / SHARD).write_bytes(b"")


@attack
def file_for_the_artifact(f: Forgery) -> None:
    shutil.rmtree(f.folder)
    f.folder.write_bytes(b"")


@attack
def fifo_for_the_artifact(f: Forgery) -> None:
    shutil.rmtree(f.folder)
    os.mkfifo(f.folder)


@attack
def blob_that_all_may_write(f: Forgery) -> None:
    f.path("weights.safetensors").chmod(0o446)


@attack
def blob_that_its_group_may_write(f: Forgery) -> None:
    f.path("weights.safetensors").chmod(0o464)


@attack
def manifest_that_all_may_write(f: Forgery) -> None:
    f.path("manifest.json").chmod(0o446)


@attack
def shard_that_all_may_write(f: Forgery) -> None:
    (f.folder / SHARD).chmod(0o757)
