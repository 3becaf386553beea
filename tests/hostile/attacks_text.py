"""Attacks on the two documents as text: what is no JSON, no canonical JSON, or too much of it."""

from __future__ import annotations

from tests.hostile.forge import Forgery, attack, replace


@attack
def artifact_json_with_trailing_newline(f: Forgery) -> None:
    f.seal(artifact=lambda text: text + b"\n")


@attack
def artifact_json_twice(f: Forgery) -> None:
    f.seal(artifact=lambda text: text + text)


@attack
def artifact_json_with_white_space(f: Forgery) -> None:
    f.seal(artifact=replace(b'"format":1', b'"format": 1'))


@attack
def artifact_json_with_a_byte_order_mark(f: Forgery) -> None:
    f.seal(artifact=lambda text: b"\xef\xbb\xbf" + text)


@attack
def artifact_json_with_a_nul(f: Forgery) -> None:
    f.seal(artifact=lambda text: text + b"\0" + text)


@attack
def artifact_json_with_keys_out_of_order(f: Forgery) -> None:
    f.seal(artifact=lambda text: b'{"format":1,' + replace(b',"format":1', b"")(text)[1:])


@attack
def artifact_json_with_a_key_twice(f: Forgery) -> None:
    f.seal(artifact=replace(b'"format":1', b'"format":1,"format":1'))


@attack
def artifact_json_that_is_not_utf_8(f: Forgery) -> None:
    f.seal(artifact=replace(b"hostile", b"host\xc0\xafile"))


@attack
def artifact_json_with_half_a_surrogate_pair(f: Forgery) -> None:
    f.seal(artifact=replace(b"hostile", b"\\ud800"))


@attack
def artifact_json_with_a_needless_escape(f: Forgery) -> None:
    f.seal(artifact=replace(b"hostile", b"\\u0068ostile"))


@attack
def artifact_json_nested_9_deep(f: Forgery) -> None:
    f.artifact["capture"] = {"a": [[[[[[[1]]]]]]]}
    f.seal()


@attack
def artifact_json_nested_without_end(f: Forgery) -> None:
    f.put("artifact.json", b"[" * 4_000_000)


@attack
def artifact_json_is_an_array(f: Forgery) -> None:
    f.put("artifact.json", b"[]")


@attack
def artifact_json_is_null(f: Forgery) -> None:
    f.put("artifact.json", b"null")


@attack
def wide_artifact_json(f: Forgery) -> None:
    """Short elements by the million, each of which a reader may keep as an object of its own."""
    f.put("artifact.json", b'{"artifact_root":[' + b"[]," * 4_000_000 + b"[]]}")


@attack
def wide_shards(f: Forgery) -> None:
    f.seal(artifact=lambda text: text[: text.index(b'"shards":[') + 10] + b"0," * 8_000_000 + b"0]}")


@attack
def number_with_a_fraction(f: Forgery) -> None:
    f.seal(artifact=replace(b'"format":1', b'"format":1.0'))


@attack
def number_with_an_exponent(f: Forgery) -> None:
    f.seal(artifact=replace(b'"leaves_bytes":', b'"leaves_bytes":1e3,"x":'))


@attack
def number_below_zero(f: Forgery) -> None:
    f.record["blob_bytes"] = -1
    f.seal(keep=("blob_bytes",))


@attack
def number_past_2_53(f: Forgery) -> None:
    f.record["blob_bytes"] = 1 << 53
    f.seal(keep=("blob_bytes",))


@attack
def number_past_64_bits(f: Forgery) -> None:
    f.record["blob_bytes"] = 1 << 64
    f.seal(keep=("blob_bytes",))


@attack
def number_with_a_zero_in_front(f: Forgery) -> None:
    f.seal(artifact=replace(b'"format":1', b'"format":01'))


@attack
def number_that_is_none(f: Forgery) -> None:
    f.seal(artifact=replace(b'"format":1', b'"format":NaN'))


@attack
def number_as_a_string(f: Forgery) -> None:
    f.record["blob_bytes"] = str(f.record["blob_bytes"])
    f.seal(keep=("blob_bytes",))


@attack
def manifest_with_trailing_bytes(f: Forgery) -> None:
    f.seal(manifest=lambda text: text + b" ")


@attack
def manifest_with_white_space(f: Forgery) -> None:
    f.seal(manifest=replace(b'"format":1', b'"format":1 '))


@attack
def manifest_with_keys_out_of_order(f: Forgery) -> None:
    f.seal(manifest=lambda text: b'{"format":1,' + replace(b',"format":1', b"")(text)[1:])


@attack
def manifest_with_a_key_twice(f: Forgery) -> None:
    f.seal(manifest=replace(b'"required":[]', b'"required":[],"required":[]'))


@attack
def manifest_with_a_column_twice(f: Forgery) -> None:
    f.seal(manifest=replace(b'"nbytes":', b'"nbytes":[1,1,1],"nbytes":'))


@attack
def manifest_name_that_is_not_utf_8(f: Forgery) -> None:
    f.seal(manifest=replace(b'"names":["a"', b'"names":["\xff"'))


@attack
def manifest_name_with_half_a_surrogate_pair(f: Forgery) -> None:
    f.seal(manifest=replace(b'"names":["a"', b'"names":["\\ud800"'))


@attack
def manifest_name_with_an_overlong_slash(f: Forgery) -> None:
    f.seal(manifest=replace(b'"names":["a"', b'"names":["a\xc0\xaf"'))


@attack
def manifest_with_a_needless_escape(f: Forgery) -> None:
    f.seal(manifest=replace(b'"names":["a"', b'"names":["\\u0061"'))


@attack
def manifest_with_a_nul_after_it(f: Forgery) -> None:
    f.seal(manifest=lambda text: text + b"\0" + text)


@attack
def manifest_nested_without_end(f: Forgery) -> None:
    f.seal(manifest=lambda text: b'{"identity":' + b'{"a":' * 2_000_000)


@attack
def manifest_nested_in_an_unknown_field(f: Forgery) -> None:
    f.seal(manifest=lambda text: b'{"aaa":' + b"[" * 4_000_000)


@attack
def manifest_of_another_file(f: Forgery) -> None:
    f.seal(manifest=lambda text: b"\x7fELF" + b"\0" * 4096)


@attack
def wide_identity(f: Forgery) -> None:
    numbers = b'"identity":{"a":[' + b"0," * 8_000_000 + b"0]}"
    f.seal(manifest=lambda text: replace(b'"identity":{"model":"hostile"}', numbers)(text))


@attack
def wide_unknown_field(f: Forgery) -> None:
    f.seal(manifest=lambda text: b'{"aaa":[' + b"[]," * 5_000_000 + b"[]]," + text[1:])
