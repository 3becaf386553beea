"""Attacks on what the documents mean: sizes, places and names that lie, under digests that fit."""

from __future__ import annotations

from tests.format.helpers import SHARD, canonical, sha256
from tests.hostile.forge import MAX_INTEGER, Forgery, attack

# artifact.json.


@attack
def newer_format(f: Forgery) -> None:
    f.artifact["format"] = 2
    f.seal()


@attack
def unknown_required_feature(f: Forgery) -> None:
    f.artifact["required"] = ["zstd"]
    f.seal()


@attack
def required_that_is_no_array(f: Forgery) -> None:
    f.artifact["required"] = {}
    f.seal()


@attack
def unknown_field(f: Forgery) -> None:
    f.artifact["exec"] = "x"
    f.seal()


@attack
def unknown_field_of_a_shard(f: Forgery) -> None:
    f.record["path"] = "../other"
    f.seal()


@attack
def missing_field(f: Forgery) -> None:
    del f.artifact["capture"]
    f.seal()


@attack
def extensions_that_are_no_object(f: Forgery) -> None:
    f.artifact["extensions"] = []
    f.seal()


@attack
def no_shard(f: Forgery) -> None:
    f.seal()
    f.artifact["shards"] = []
    root = {"format": 1, "identity": sha256(canonical(f.artifact["identity"])), "shards": []}
    f.artifact["artifact_root"] = sha256(canonical(root))
    f.put("artifact.json", canonical(f.artifact))


@attack
def shard_twice(f: Forgery) -> None:
    f.artifact["shards"].append(f.record)
    f.seal()


@attack
def shards_out_of_order(f: Forgery) -> None:
    f.artifact["shards"].append({**f.record, "name": "shard-00-00-00"})
    f.record["name"] = "shard-00-01-00"
    f.seal()


def _shard_named(f: Forgery, name: str) -> None:
    f.record["name"] = name
    f.seal()


@attack
def shard_that_leads_out(f: Forgery) -> None:
    _shard_named(f, "../outside")


@attack
def shard_with_an_absolute_path(f: Forgery) -> None:
    _shard_named(f, "/etc")


@attack
def shard_that_leads_back_in(f: Forgery) -> None:
    _shard_named(f, f"{SHARD}/../{SHARD}")


@attack
def shard_that_is_the_artifact(f: Forgery) -> None:
    _shard_named(f, ".")


@attack
def shard_without_a_name(f: Forgery) -> None:
    _shard_named(f, "")


@attack
def shard_with_a_nul_in_its_name(f: Forgery) -> None:
    _shard_named(f, f"{SHARD}\0")


@attack
def shard_with_a_trailing_slash(f: Forgery) -> None:
    _shard_named(f, f"{SHARD}/")


@attack
def shard_with_another_spelling(f: Forgery) -> None:
    _shard_named(f, "shard-000-00-00")


@attack
def wrong_artifact_root(f: Forgery) -> None:
    f.artifact["artifact_root"] = "0" * 64
    f.seal(keep=("artifact_root",))


@attack
def artifact_root_in_capitals(f: Forgery) -> None:
    f.artifact["artifact_root"] = f.artifact["artifact_root"].upper()
    f.seal(keep=("artifact_root",))


@attack
def other_manifest_than_listed(f: Forgery) -> None:
    f.record["manifest_sha256"] = "0" * 64
    f.seal(keep=("manifest_sha256",))


@attack
def other_size_than_listed(f: Forgery) -> None:
    f.record["blob_bytes"] = MAX_INTEGER
    f.seal(keep=("blob_bytes",))


@attack
def other_shard_root_than_listed(f: Forgery) -> None:
    f.record["shard_root"] = "0" * 64
    f.seal(keep=("shard_root",))
    f.manifest["shard_root"] = "1" * 64


@attack
def other_identity_than_listed(f: Forgery) -> None:
    f.manifest["identity"] = {"model": "another"}
    f.seal()


# manifest.json as a whole.


@attack
def newer_format_of_a_manifest(f: Forgery) -> None:
    f.manifest["format"] = 2
    f.seal()


@attack
def unknown_required_feature_of_a_manifest(f: Forgery) -> None:
    f.manifest["required"] = ["encoding"]
    f.manifest["extents"]["encoding"] = ["zstd"] * 3
    f.seal()


@attack
def unknown_field_of_a_manifest(f: Forgery) -> None:
    f.manifest["exec"] = 1
    f.seal()


@attack
def unknown_column(f: Forgery) -> None:
    f.manifest["tensors"]["paths"] = ["/etc/passwd"] * 5
    f.seal()


@attack
def missing_column(f: Forgery) -> None:
    del f.manifest["tensors"]["roles"]
    f.seal()


@attack
def short_column(f: Forgery) -> None:
    f.column("tensors", "roles").pop()
    f.seal()


@attack
def long_column(f: Forgery) -> None:
    f.column("extents", "nbytes").append(1)
    f.seal()


@attack
def column_of_another_type(f: Forgery) -> None:
    f.column("extents", "nbytes")[0] = "70000"
    f.seal()


@attack
def wrong_layout_digest(f: Forgery) -> None:
    f.manifest["layout_digest"] = "0" * 64
    f.seal(keep=("layout_digest",))


@attack
def wrong_shard_root(f: Forgery) -> None:
    f.manifest["shard_root"] = "0" * 64
    f.seal(keep=("shard_root",))


@attack
def wrong_header_digest(f: Forgery) -> None:
    f.manifest["header_sha256"] = "0" * 64
    f.seal()


@attack
def wrong_leaves_digest(f: Forgery) -> None:
    f.manifest["leaves_sha256"] = "0" * 64
    f.seal()


@attack
def digest_in_capitals(f: Forgery) -> None:
    f.column("extents", "sha256t")[0] = f.column("extents", "sha256t")[0].upper()
    f.seal()


@attack
def digest_too_short(f: Forgery) -> None:
    f.column("extents", "crc32")[0] = "0"
    f.seal()


# Extents.


@attack
def overlapping_extents(f: Forgery) -> None:
    f.column("extents", "file_offset")[1] = f.column("extents", "file_offset")[0]
    f.seal()


@attack
def extent_in_the_header(f: Forgery) -> None:
    f.column("extents", "file_offset")[0] = 0
    f.seal()


@attack
def extent_past_the_blob(f: Forgery) -> None:
    f.column("extents", "file_offset")[2] = MAX_INTEGER
    f.seal()


@attack
def extent_that_wraps_around(f: Forgery) -> None:
    f.column("extents", "nbytes")[0] = MAX_INTEGER
    f.seal()


@attack
def extents_whose_sum_wraps_around(f: Forgery) -> None:
    f.column("extents", "nbytes")[0] = f.column("extents", "nbytes")[1] = MAX_INTEGER - 65_536
    f.seal()


@attack
def extent_of_nothing(f: Forgery) -> None:
    f.column("extents", "nbytes")[2] = 0
    f.seal()


@attack
def extent_larger_than_its_place(f: Forgery) -> None:
    f.column("extents", "nbytes")[0] = 200_000
    f.seal()


@attack
def extent_at_an_odd_place(f: Forgery) -> None:
    f.column("extents", "file_offset")[2] += 1
    f.seal()


@attack
def extent_at_another_aligned_place(f: Forgery) -> None:
    f.column("extents", "file_offset")[2] += 512
    f.seal()


@attack
def extents_out_of_order(f: Forgery) -> None:
    row = f.column("tensors", "extent")
    first, second = f.tensor("a"), f.tensor("m")
    row[first], row[second] = row[second], row[first]
    f.column("tensors", "shapes")[first] = [65_536]
    f.column("tensors", "shapes")[second] = [65_536]
    f.seal()


@attack
def extent_of_nobody(f: Forgery) -> None:
    f.column("tensors", "extent")[f.tensor("m")] = 0
    f.seal()


@attack
def data_at_an_odd_place(f: Forgery) -> None:
    f.manifest["data_start"] += 512
    f.seal()


@attack
def data_at_the_start(f: Forgery) -> None:
    f.manifest["data_start"] = 0
    f.seal()


@attack
def giant_header(f: Forgery) -> None:
    """A header that would be read whole, in a blob that is long enough, and in no byte there."""
    f.manifest["data_start"] = 1 << 40
    f.manifest["blob_bytes"] = (1 << 40) + 262_144
    f.resize("weights.safetensors", f.manifest["blob_bytes"])
    f.seal()


@attack
def blob_of_another_size(f: Forgery) -> None:
    f.manifest["blob_bytes"] += 65_536
    f.resize("weights.safetensors", f.manifest["blob_bytes"])
    f.seal()


@attack
def leaves_for_more_than_there_is(f: Forgery) -> None:
    f.resize("leaves.bin", 1 << 40)
    f.seal()
