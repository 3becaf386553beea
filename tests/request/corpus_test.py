"""The corpus says what is true: each request gets its receipt, and every rule of the schema is broken once."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest

from coldsnap import calibrate, capabilities, errors, operations, request_schema, schema_command
from coldsnap.request_schema import OPERATIONS
from tests.request import breaking, update, validator, world

CORPUS = pathlib.Path(os.environ["RUNFILES_ROOT"], "tests", "request", "corpus")
REFUSED: list[dict[str, str]] = json.loads((CORPUS / "refused.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((CORPUS / "answers").iterdir())
}
RECEIPT = schema_command.document()["$defs"]["receipt"]


@pytest.fixture(scope="module")
def answered() -> dict[str, dict[str, Any]]:
    return update.answers()


def test_answers_stand_in_the_corpus(answered: dict[str, dict[str, Any]]) -> None:
    assert ANSWERS.keys() == answered.keys()


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(name: str, answered: dict[str, dict[str, Any]]) -> None:
    assert answered[name] == ANSWERS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_exit_code_is_the_errors(name: str) -> None:
    error = ANSWERS[name]["receipt"]["error"]
    codes = {kind.code: kind.exit_code for kind in errors.ERROR_CLASSES}
    assert ANSWERS[name]["exit_code"] == (0 if error is None else codes[error["code"]])


def test_there_is_a_receipt_of_each_class_of_failure() -> None:
    assert {0, 2, 3, 4, 5} <= {entry["exit_code"] for entry in ANSWERS.values()}
    assert {each.name for each in OPERATIONS} == {entry["request"]["operation"] for entry in ANSWERS.values()}


def test_refusals_are_those_of_the_code() -> None:
    assert update.refused() == REFUSED, "run: ./bazelw run //tests/request:update"


@pytest.mark.parametrize("entry", REFUSED, ids=[entry["rule"] for entry in REFUSED])
def test_refusal(entry: dict[str, str]) -> None:
    with pytest.raises(errors.RequestInvalidError) as refusal:
        request_schema.parse(update.request_of(entry))
    assert refusal.value.message == entry["message"]
    assert refusal.value.receipt is not None
    assert refusal.value.receipt.error == errors_entry(entry["message"])


def errors_entry(message: str) -> dict[str, str]:
    return {"code": "request_invalid", "message": message, "stage": "", "remedy": "coldsnap schema prints the rules"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_rule_is_broken_by_one(operation: request_schema.Operation) -> None:
    schema = request_schema.kind_of(operation).schema
    entries = [json.loads(each["request"]) for each in REFUSED if each["rule"].startswith(f"{operation.name}: ")]
    found = set().union(*(validator.broken(schema, entry) for entry in entries))
    assert set(breaking.rules_of(operation)) <= found


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_request_with_every_key_is_taken(operation: request_schema.Operation) -> None:
    request = breaking.whole_request(operation.name)
    others = {"path", "artifact", "control"}  # what can't stand beside a store, and beside receipts
    assert request.keys() | others >= {field.name for field in operation.fields} | others
    assert validator.broken(request_schema.request_schema(), request) == set()
    parsed = request_schema.parse(json.dumps(request).encode())
    assert parsed == (operation.name, breaking.WHOLE[operation.name])


def test_receipts_keep_their_schema(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "world"
    folder.mkdir()
    world.make(folder)
    for name, values in update.ANSWERS.items():
        done = world.ask(folder, json.dumps({"format": 1, **values}).encode())
        assert validator.broken(RECEIPT, json.loads(done.stdout)) == set(), name
    done = world.ask(folder, b"no JSON")
    assert validator.broken(RECEIPT, json.loads(done.stdout)) == set()
    assert validator.broken(RECEIPT, {}) > {("$.ok", "required"), ("$.report", "required")}


def test_capabilities_names_the_operations_that_there_are() -> None:
    found = capabilities.report(None)
    assert found["operations"] == [operation.name for operation in OPERATIONS]
    assert tuple(found["refused_operations"]) == request_schema.NOT_YET


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema_command.main([]) == 0
    assert json.loads(capsys.readouterr().out) == schema_command.document()
    assert schema_command.main(["--json"]) == 2
    assert capsys.readouterr().err == "coldsnap schema: '--json' was given, and it takes no argument\n"
    assert schema_command.main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: coldsnap schema\n")


@pytest.mark.parametrize("sweep", [True, False])
def test_calibrate_takes_the_values_of_a_request(sweep: bool) -> None:
    values = breaking.WHOLE["calibrate"] | {"sweep": sweep}
    found = calibrate.parse_flags(["calibrate", *(operations._flag(name, value) for name, value in values.items())])
    assert found is not None
    assert (found.nbytes, found.extents, found.device, found.sweep) == (8388608, 1000, "host", sweep)
    assert (found.caches, found.samples, found.seed) == ({"warm"}, range(1, 1), 7)
    chosen = {name: found.hydration[name].value for name in ("chunk_bytes", "queue_depth")}
    assert chosen == {"chunk_bytes": 65536, "queue_depth": 2}
    assert [path and path.name for path in (found.path, found.output)] == ["drive", "results"]
