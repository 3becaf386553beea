"""Attacks on the tensors of a manifest: names, shapes and places that lie, under digests that fit."""

from __future__ import annotations

from tests.hostile.forge import MAX_INTEGER, Forgery, attack, replace


@attack
def tensor_outside_its_extent(f: Forgery) -> None:
    f.column("tensors", "offset")[f.tensor("c")] = 84
    f.seal()


@attack
def tensor_whose_offset_wraps_around(f: Forgery) -> None:
    f.column("tensors", "offset")[f.tensor("c")] = MAX_INTEGER
    f.seal()


@attack
def tensor_larger_than_its_extent(f: Forgery) -> None:
    f.column("tensors", "shapes")[f.tensor("b")] = [26]
    f.seal()


@attack
def tensor_whose_stride_leads_out(f: Forgery) -> None:
    f.column("tensors", "strides")[f.tensor("c")] = [100]
    f.seal()


@attack
def shape_that_wraps_around(f: Forgery) -> None:
    row = f.tensor("c")
    f.column("tensors", "shapes")[row] = [1 << 32, 1 << 32]
    f.column("tensors", "strides")[row] = [1 << 32, 1]
    f.seal()


@attack
def strides_that_wrap_around(f: Forgery) -> None:
    f.column("tensors", "strides")[f.tensor("c")] = [MAX_INTEGER]
    f.seal()


@attack
def too_many_dimensions(f: Forgery) -> None:
    row = f.tensor("c")
    f.column("tensors", "shapes")[row] = [1] * 65
    f.column("tensors", "strides")[row] = [1] * 65
    f.seal()


@attack
def shape_without_end(f: Forgery) -> None:
    f.seal(manifest=replace(b'"shapes":[[70000]', b'"shapes":[[' + b"1," * 8_000_000 + b"1]"))


@attack
def strides_for_another_shape(f: Forgery) -> None:
    f.column("tensors", "strides")[f.tensor("c")] = [1, 1]
    f.seal()


@attack
def negative_stride(f: Forgery) -> None:
    f.column("tensors", "strides")[f.tensor("c")] = [-1]
    f.seal()


@attack
def tensor_in_no_extent(f: Forgery) -> None:
    f.column("tensors", "extent")[f.tensor("c")] = None
    f.seal()


@attack
def tensor_in_an_extent_that_is_not_there(f: Forgery) -> None:
    f.column("tensors", "extent")[f.tensor("c")] = 3
    f.seal()


@attack
def tensor_in_an_extent_past_32_bits(f: Forgery) -> None:
    f.column("tensors", "extent")[f.tensor("c")] = (1 << 32) + 2
    f.seal()


@attack
def tensor_of_an_unknown_dtype(f: Forgery) -> None:
    f.column("tensors", "dtypes")[f.tensor("c")] = "OBJECT"
    f.seal()


@attack
def name_twice(f: Forgery) -> None:
    f.column("tensors", "names")[f.tensor("c")] = "b"
    f.seal()


@attack
def names_out_of_order(f: Forgery) -> None:
    f.column("tensors", "names")[f.tensor("c")] = "a.c"
    f.seal()


@attack
def name_of_nothing(f: Forgery) -> None:
    f.column("tensors", "names")[0] = ""
    f.seal()


@attack
def name_too_long(f: Forgery) -> None:
    f.column("tensors", "names")[0] = "a" * 4097
    f.seal()


@attack
def name_with_a_nul(f: Forgery) -> None:
    f.column("tensors", "names")[0] = "a\0"
    f.seal()


@attack
def objects_out_of_order(f: Forgery) -> None:
    f.column("tensors", "objects")[0] = 7
    f.seal()


@attack
def one_object_in_two_places(f: Forgery) -> None:
    row = f.column("tensors", "objects")
    row[f.tensor("c")] = row[f.tensor("b")]
    f.seal()


@attack
def attrs_out_of_order(f: Forgery) -> None:
    f.column("tensors", "attrs")[f.tensor("b")].reverse()
    f.seal()


@attack
def attr_without_a_value(f: Forgery) -> None:
    f.column("tensors", "attrs")[f.tensor("b")] = ["persistent"]
    f.seal()


@attack
def attr_twice(f: Forgery) -> None:
    f.column("tensors", "attrs")[f.tensor("b")] = ["persistent=0", "persistent=1"]
    f.seal()


@attack
def attrs_without_end(f: Forgery) -> None:
    """In order, and the last key stands twice: whoever compares each with each is busy for hours."""
    attrs = [f"{number:07d}=" for number in range(600_000)]
    f.column("tensors", "attrs")[f.tensor("b")] = [*attrs, "0599999=1"]
    f.seal()


@attack
def wide_tensors(f: Forgery) -> None:
    """Rows that take three bytes of text, and a reader's whole record each, by the million."""
    f.seal(manifest=replace(b'"attrs":[', b'"attrs":[' + b"[]," * 5_000_000))


@attack
def wide_extents(f: Forgery) -> None:
    """The same in a column that is not the first, for readers that grow their rows with any."""
    f.seal(manifest=lambda text: b'{"extents":{"nbytes":[' + b"1," * 8_000_000 + b"1]}," + text[1:])
