"""Attacks on the weights themselves, which opening does not read: they are for `verify`, and for every restore."""

from __future__ import annotations

from tests.format.helpers import LEAF_BYTES, leaves_of, sha256
from tests.hostile.forge import Forgery, attack


@attack
def flipped_bit(f: Forgery) -> None:
    f.flip("weights.safetensors", f.column("extents", "file_offset")[0] + 65_540)


@attack
def flipped_bit_in_the_last_byte(f: Forgery) -> None:
    f.flip("weights.safetensors", f.column("extents", "file_offset")[2] + 99)


@attack
def nonzero_padding(f: Forgery) -> None:
    f.flip("weights.safetensors", f.manifest["blob_bytes"] - 1)


@attack
def nonzero_padding_between_extents(f: Forgery) -> None:
    f.flip("weights.safetensors", f.column("extents", "file_offset")[0] + 70_000)


@attack
def swapped_pieces(f: Forgery) -> None:
    """Two pieces of the right content in each other's place."""
    blob = bytearray(f.path("weights.safetensors").read_bytes())
    first, second = f.column("extents", "file_offset")[:2]
    blob[first : first + LEAF_BYTES], blob[second : second + LEAF_BYTES] = (
        bytes(blob[second : second + LEAF_BYTES - 1] + b"\1"),
        bytes(blob[first : first + LEAF_BYTES]),
    )
    f.put("weights.safetensors", bytes(blob))


@attack
def zeroed_blob(f: Forgery) -> None:
    """What a hole leaves where a copy stopped and the size was set in advance."""
    start = f.manifest["data_start"]
    f.put("weights.safetensors", f.path("weights.safetensors").read_bytes()[:start])
    f.resize("weights.safetensors", f.manifest["blob_bytes"])


@attack
def wrong_crc32(f: Forgery) -> None:
    """SHA-256 and leaves are right, so only this tells that the writer was broken."""
    f.column("extents", "crc32")[2] = "00000000"
    f.seal()


@attack
def header_of_the_blob_changed(f: Forgery) -> None:
    f.flip("weights.safetensors", 20)


@attack
def header_length_past_the_file(f: Forgery) -> None:
    blob = bytearray(f.path("weights.safetensors").read_bytes())
    blob[:8] = b"\xff" * 8
    f.put("weights.safetensors", bytes(blob))
    f.manifest["header_sha256"] = sha256(bytes(blob[: f.manifest["data_start"]]))
    f.seal()


@attack
def header_that_names_other_bytes(f: Forgery) -> None:
    """Two entries that overlap, for the tools that trust the header; every digest fits."""
    start = f.manifest["data_start"]
    blob = f.path("weights.safetensors").read_bytes()
    header = blob[:start].replace(b'"data_offsets":[0,70000]', b'"data_offsets":[1,70001]')
    assert header != blob[:start]
    f.put("weights.safetensors", header + blob[start:])
    f.manifest["header_sha256"] = sha256(header)
    f.seal()


@attack
def leaves_changed(f: Forgery) -> None:
    f.flip("leaves.bin", 0)


@attack
def leaves_of_other_bytes(f: Forgery) -> None:
    f.flip("leaves.bin", 0)
    f.manifest["leaves_sha256"] = sha256(f.path("leaves.bin").read_bytes())
    f.seal()


@attack
def root_of_other_leaves(f: Forgery) -> None:
    f.column("extents", "sha256t")[1] = sha256(leaves_of(b"other bytes"))
    f.seal()
