"""Strict reading of small JSON records: everything that is not exactly right is named with its place."""

from typing import Any

import pytest

from coldsnap import records

CHECK = records.record(
    count=records.whole(1, 64),
    size=records.whole(4, 64, multiple_of=4),
    big=records.decimal,
    rate=records.rate,
    name=records.optional(records.text("[a-z]+")),
    list=records.array(records.whole(0, 9)),
)
GOOD: dict[str, Any] = {"count": 1, "size": 8, "big": "18446744073709551615", "rate": 0.5, "name": None, "list": [0, 9]}


def text_of(**changed: Any) -> bytes:
    import json

    return json.dumps({**GOOD, **changed}).encode()


def test_what_is_right_is_given_back() -> None:
    assert records.load(text_of(), CHECK) == {**GOOD, "big": (1 << 64) - 1}
    assert records.load(text_of(name="abc", count=64, big="-1", list=[], rate=7), CHECK)["rate"] == 7.0


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"count": 0}, r"\$\.count is 0 and not a whole number from 1 to 64"),
        ({"count": 65}, r"\$\.count is 65"),
        ({"count": True}, r"\$\.count is True"),
        ({"count": 1.0}, r"\$\.count is 1\.0"),
        ({"count": "1"}, r"\$\.count is '1'"),
        ({"size": 6}, r"\$\.size is 6 and not a whole number from 4 to 64, a multiple of 4"),
        ({"big": 5}, r"\$\.big is 5 and not a whole number as text"),
        ({"big": "9" * 21}, r"\$\.big is '9+' and"),
        ({"big": "\N{ARABIC-INDIC DIGIT THREE}"}, r"\$\.big is '\N{ARABIC-INDIC DIGIT THREE}' and"),
        ({"rate": 0}, r"\$\.rate is 0 and not a number above 0"),
        ({"rate": True}, r"\$\.rate is True"),
        ({"rate": 10**400}, r"\$\.rate is 10+\.\.\. and"),
        ({"name": "A"}, r"\$\.name is 'A', which is not of its form"),
        ({"name": "a\n"}, r"\$\.name is 'a\\n', which"),
        ({"list": [1, 10]}, r"\$\.list\[1\] is 10"),
        ({"list": {}}, r"\$\.list is no array"),
        ({"other": 1}, r"\$ has the unknown key 'other'"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        records.load(text_of(**changed), CHECK)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[]", r"\$ is no object"),
        (b"{}", r"\$ has no '"),
        (b"", "Expecting value"),
        (text_of() + b"x", "Extra data"),
        (text_of().replace(b'"count": 1', b'"count": 1, "count": 1'), "a key stands twice"),
        (text_of().replace(b"0.5", b"NaN"), "NaN is no JSON"),
        (text_of().replace(b"0.5", b"1e999"), r"\$\.rate is inf"),
        (b"\xff", "invalid start byte"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        records.load(data, CHECK)
