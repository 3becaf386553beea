"""results.json, in the fixed shape of docs/architecture.md; one line per ceiling and case, so that runs diff well."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap._bench.cases import Case, Setting, bound_of
from coldsnap._bench.ceilings import Ceiling

FORMAT = 1


def results_of(
    commit: str,
    machine: dict[str, Any],
    seed: int,
    payload_bytes: int,
    found: list[Ceiling],
    cases: list[Case],
    ring: tuple[Setting, list[float]] | None = None,
) -> dict[str, Any]:
    """Put the samples into the shape of results.json: rates in bytes per second, times in seconds."""
    return {
        "format": FORMAT,
        "commit": commit,
        "machine": machine,
        "seed": seed,
        "payload_bytes": payload_bytes,
        "ceilings": [_ceiling(each) for each in found if each.samples] + ([_ring(*ring)] if ring else []),
        "cases": [_case(each, payload_bytes, found) for each in cases if each.samples_s],
    }


def write_json(folder: Path, name: str, document: dict[str, Any], mode: int = 0o777) -> Path:
    """Write `document` to `folder`/`name`: whole or not at all.

    Args:
        folder: Made if it is missing.
        name: The file's name; an older file of this name is replaced.
        document: Keys are written in their own order, lists of objects one object a line, a newline at the end.
        mode: Of the folders that are made on the way.
    Returns:
        The file's path.
    Raises:
        IoError, NoSpaceError: It could not be written; an older file is as it was.
    """
    path = folder / name
    scratch = folder / f".{name}.{os.getpid()}"
    try:
        for each in (*reversed(folder.parents), folder):
            if not each.is_dir():
                each.mkdir(mode=mode)
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                file.write(_text(document))
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise errors.from_errno(error, f"write {path}", remedy="give another --output") from error
    return path


def _ceiling(each: Ceiling) -> dict[str, Any]:
    samples = [round(sample) for sample in each.samples]
    return {"name": each.name, "unit": "bytes_per_second", "samples": samples, "median": round(each.median)}


def _ring(setting: Setting, seconds: list[float]) -> dict[str, Any]:
    """Give the seconds that making a ring took: a stage of its own, which no case's time contains."""
    name = f"ring_ready.{setting.chunk_bytes}x{setting.queue_depth}"
    samples = [round(each, 6) for each in seconds]
    return {"name": name, "unit": "seconds", "samples": samples, "median": round(statistics.median(samples), 6)}


def _case(case: Case, payload_bytes: int, found: list[Ceiling]) -> dict[str, Any]:
    rate = payload_bytes / case.median_s
    bound = bound_of(case, found)
    return {
        "operation": "hydrate",
        "route": case.route,
        "cache": case.cache,
        "digest": case.digest,
        "place": case.found_place,
        "chunk_bytes": case.setting.chunk_bytes,
        "queue_depth": case.setting.queue_depth,
        "threads": case.setting.threads,
        "samples_s": [round(sample, 6) for sample in case.samples_s],
        "median_s": round(case.median_s, 6),
        "bytes_per_second": round(rate),
        "ceiling": bound.name if bound else None,
        "ratio": round(rate / bound.median, 4) if bound else None,
        "limiting_stage": case.limiting_stage,
        "residency_before": [round(fraction, 4) for fraction in case.residency_before],
    }


def _text(document: dict[str, Any]) -> str:
    """Write JSON with one line per entry of a list of objects, which `json` itself can't: it gives one per number."""
    members = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join("    " + json.dumps(row, allow_nan=False) for row in value)
            members.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        else:
            members.append(f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(members) + "\n}\n"
