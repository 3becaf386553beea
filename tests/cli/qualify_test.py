"""``coldsnap qualify``: what it refuses before it starts anything."""

from __future__ import annotations

import json
import pathlib

import pytest

from coldsnap import cli


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{model}"], "it is no JSON"),
        (["[]"], "it is no JSON object"),
        (["{}", "--artifact", "a", "--store", "b"], "not allowed with argument"),
        (["{}", "--engine", "another"], "invalid choice: 'another'"),
        (["{}"], "the arguments name no model"),
        (['{"model": "m", "load_format": "auto"}'], "the arguments have a load_format"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["coldsnap", "qualify", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out


def test_a_failure_is_a_receipt_with_json(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert cli.main(["coldsnap", "qualify", "--json", "--artifact", str(tmp_path), "{}"]) == 2
    receipt = json.loads(capsys.readouterr().out)
    assert (receipt["ok"], receipt["operation"], receipt["error"]["code"]) == (False, "qualify", "request_invalid")
