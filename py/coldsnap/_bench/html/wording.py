"""The words for a case of results.json and for a ceiling, the same in plots and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldsnap._bench.sizes import format_size

Results = Mapping[str, Any]
_WHERE = {"host": "", "device": " on device", "both": " on both"}


def kind_of(case: Results) -> tuple[str, str, str, str, str]:
    """What tells a case from another, its setting and its blob aside."""
    return (case["operation"], name_of(case), case["cache"], case.get("digest") or "", case.get("place") or "")


def name_of(case: Results) -> str:
    """Its route; of `//bench:peers` its loader."""
    return str(case.get("route") or case["loader"])


def label_of(case: Results) -> str:
    """A case in words: its route, and the digests that it computes."""
    digest = case.get("digest")
    return name_of(case) + (f", {digest}{_WHERE[case['place']] if digest != 'none' else ''}" if digest else "")


def case_of(results: Results, case: Results) -> str:
    """A case in words with what it did, where that is no restore, and what it moved, where that is another blob."""
    doing = "" if case["operation"] == "hydrate" else f"{case['operation']} by "
    blob = blob_of(results, case)
    return doing + label_of(case) + (f", {blob}" if blob else "")


def setting_of(case: Results) -> str:
    """How a case was run."""
    if "chunk_bytes" not in case:
        return str(case["how"])
    threads = f"{case['threads']} thread" + ("s" if case["threads"] != 1 else "")
    drive = case.get("direct")
    return f"{_slots(case)}, {threads}" + (f"; drive {_slots(drive)}, {drive['threads']}" if drive else "")


def _slots(setting: Results) -> str:
    return f"{format_size(setting['chunk_bytes'])} x {setting['queue_depth']}"


def payload_of(results: Results, case: Results) -> int:
    """How many bytes of payload a sample of a case moves."""
    return int(case.get("payload_bytes", results["payload_bytes"]))


def blob_of(results: Results, case: Results) -> str:
    """What a case moves, where that is not the results' own blob: its extents; else nothing."""
    same = payload_of(results, case) == results["payload_bytes"]
    return "" if same else f"{case['extents']} extents"


def ceiling_name(name: str) -> str:
    """A ceiling's name in words: ``raw_direct_read.t4`` is a raw direct read, by 4 threads."""
    return name.partition(".")[0].replace("_", " ")
