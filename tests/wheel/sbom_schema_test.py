"""The bill of materials in the wheel is CycloneDX, by the schema that its own library carries."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.wheel.bill import bill, contents

BILL = bill(contents())


def complaint(document: dict[str, Any]) -> str:
    """What the schema says against a document; nothing where it has no objection."""
    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    return "" if found is None else str(found)


def test_the_schema_accepts_it() -> None:
    assert complaint(BILL) == ""


@pytest.mark.parametrize("key", ["bomFormat", "specVersion"])
def test_the_schema_was_asked(key: str) -> None:
    damaged = copy.deepcopy(BILL)
    del damaged[key]
    assert key in complaint(damaged)


def test_references_name_what_is_there_once() -> None:
    """What no schema can say."""
    refs = [BILL["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in BILL["components"])]
    assert len(refs) == len(set(refs))
    assert sorted(each["ref"] for each in BILL["dependencies"]) == sorted(refs)
    assert {ref for each in BILL["dependencies"] for ref in each.get("dependsOn", [])} == set(refs[1:])
