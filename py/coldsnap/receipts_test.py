"""The receipt has the contract's keys, is one line of strict JSON, and says nothing about who the host is."""

import json
import os
import socket

import pytest

from coldsnap import errors, receipts
from coldsnap.settings import Setting

# docs/architecture.md, section 9a.
KEYS = [
    "format",
    "ok",
    "operation",
    "artifact_root",
    "provider",
    "routes",
    "reasons",
    "settings",
    "stages_s",
    "wall_s",
    "payload_bytes",
    "bytes_per_second",
    "ceiling_ratio",
    "limiting_stage",
    "residency",
    "gds_path",
    "verify",
    "versions",
    "machine",
    "error",
]


def account() -> receipts.Account:
    return receipts.Account(
        operation="hydrate",
        artifact_root="ab" * 32,
        provider="native",
        routes=[{"route": "direct", "bytes": 100, "extents": 2}],
        reasons=[{"code": "explicit", "detail": "x"}, {"code": "explicit", "detail": "x"}],
        settings={"verify": Setting("crc32", "environment")},
        stages_s={"open": 9.0, "read": 0.25, "digest": 0.5, "copy": 0.125},
        wall_s=0.5,
        payload_bytes=100,
        residency={"before": 0.0, "after": 1.0},
        place="host",
    )


def test_keys_are_those_of_the_contract() -> None:
    assert list(account().receipt().as_dict()) == KEYS
    assert list(account().receipt(ValueError("x")).as_dict()) == KEYS
    assert list(receipts.Account("verify").receipt(ValueError("x")).as_dict()) == KEYS


def test_a_success() -> None:
    receipt = account().receipt()
    assert receipt.ok
    assert receipt.error is None
    assert receipt.bytes_per_second == 200.0
    assert receipt.limiting_stage == "digest"  # opening took longer and limits nothing
    assert receipt.ceiling_ratio is None
    assert receipt.reasons == [{"code": "explicit", "detail": "x"}]
    assert receipt.settings == {"verify": {"value": "crc32", "source": "environment"}}
    assert receipt.verify == {"mode": "crc32", "place": "host"}
    assert list(receipt.stages_s) == list(receipts.STAGES)
    assert receipt.stages_s["drain"] == 0.0


def test_nothing_moved_has_no_rate() -> None:
    empty = receipts.Account("hydrate", wall_s=0.1).receipt()
    assert (empty.bytes_per_second, empty.limiting_stage) == (None, None)


@pytest.mark.parametrize(
    ("failure", "entry"),
    [
        (
            errors.DataLossError("read 7 bytes", stage="read", remedy="copy it again"),
            {"code": "data_loss", "message": "read 7 bytes", "stage": "read", "remedy": "copy it again"},
        ),
        (KeyboardInterrupt(), {"code": "cancelled"}),
        (ZeroDivisionError("by zero"), {"code": "internal", "message": "ZeroDivisionError: by zero"}),
        (AssertionError(), {"code": "internal", "message": "AssertionError"}),
    ],
)
def test_a_failure(failure: BaseException, entry: dict[str, str]) -> None:
    receipt = account().receipt(failure)
    assert not receipt.ok
    assert receipt.error is not None
    assert list(receipt.error) == ["code", "message", "stage", "remedy"]
    assert entry.items() <= receipt.error.items()
    assert receipt.bytes_per_second is None


def test_json_is_one_line_and_gives_the_same_back() -> None:
    receipt = account().receipt(errors.IoError("open 'a\nb\u2028ü'"))
    text = receipt.to_json()
    assert len(text.splitlines()) == 1 or "\u2028" in text
    assert "\n" not in text
    assert json.loads(text) == receipt.as_dict()


def test_the_dictionary_is_the_caller_s_own() -> None:
    receipt = account().receipt()
    receipt.as_dict()["routes"][0]["bytes"] = 0
    assert receipt.routes[0]["bytes"] == 100


def test_a_receipt_is_frozen() -> None:
    with pytest.raises(AttributeError):
        account().receipt().ok = False  # type: ignore[misc]


def test_machine_names_no_host_and_no_path() -> None:
    machine = receipts.machine("NVIDIA H200")
    assert list(machine) == ["cpu", "cores", "memory_bytes", "kernel", "gpu"]
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["memory_bytes"] > 1 << 28
    assert machine["gpu"] == "NVIDIA H200"
    text = json.dumps([machine, receipts.versions()])
    assert f'"{socket.gethostname()}"' not in text
    assert '"/' not in text
