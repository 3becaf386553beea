"""results.json, in the fixed shape of docs/architecture.md; one line per ceiling and case, so that runs diff well.

Beside the fixed keys a calibration has:

- ``complete``: false while it runs and after it was interrupted; then ``missing`` names what has too few samples.
- ``left_out``: what there was no time for, in words; ``sittings``: how many runs its samples are from (1 unless resumed).
- ``request``: what was asked for, as far as two runs must agree in it to be one: ``extents``, ``operations``,
  ``caches``, ``sweep``, ``least`` and ``most`` samples; ``setting`` (chunk_bytes, queue_depth, threads) and ``drive`` (the
  same for reads from the drive), which restores have without a profile; ``asked``, whether somebody chose them.
  ``minutes`` may differ.
- ``drive``: the setting that this calibration chose for reads from the drive.
- ``trials``: entries as of ``cases``, of settings that were tried on the way: few samples, some over part of the blob
  (``payload_bytes``), and the better ones were chosen by them. They show where it is slow, and prove nothing.
- ``recommendation``: the best of each operation and cache state with its reason in ``why`` (`_bench.recommend`).
- ``comparison``, only if asked for: `_bench.compare`.
- ``trace``, only if asked for: ``traceEvents`` of one restore by each route, as Perfetto reads them.

An entry of ``cases`` has beside the fixed keys ``payload_bytes`` and ``extents`` of what was moved (the blob of small
extents is another one than the main one), ``asked`` with the ``cache`` state and digest ``place`` that were wanted, and
``direct``: chunk_bytes, queue_depth and threads for the drive where a case of `auto` has its own, else null.
``processors`` names the entry of ``ceilings`` that says what hashing all processors gave in the same rounds; null where
that was not measured. A capture's ``operation`` is ``capture`` and its ``cache`` is ``new``: the file was not there before.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap._bench.cases import Measured, Setting, bound_of, name_of
from coldsnap._bench.ceilings import Ceiling

FORMAT = 1


def results_of(
    commit: str,
    machine: dict[str, Any],
    seed: int,
    payload_bytes: int,
    found: list[Ceiling],
    cases: Iterable[Measured],
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
        "cases": entries_of(cases, found),
    }


def entries_of(cases: Iterable[Measured], found: list[Ceiling]) -> list[dict[str, Any]]:
    """The entries of ``cases`` or ``trials`` for what was measured."""
    return [_case(each, found) for each in cases if each.samples_s]


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


def read_json(path: Path, doing: str) -> dict[str, Any]:
    """Read a results.json that a calibration wrote.

    Args:
        path: The file.
        doing: What for, in words for a message.
    Raises:
        RequestInvalidError: It is missing, or no results.json of this format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']}")
        for entry in document["cases"]:
            name_of(entry, document["payload_bytes"])
            if not entry["samples_s"] or not min(entry["samples_s"]) > 0:
                raise ValueError("a case has no samples, or one of no time")
        rates = [rate for each in document["ceilings"] for rate in each["samples"]]
        if not all(isinstance(rate, int | float) for rate in rates) or not isinstance(document["machine"], dict):
            raise ValueError("a ceiling's sample or the machine has another type")
    except OSError as error:
        raise errors.RequestInvalidError(f"{doing}: read {path}: {error.strerror}", remedy="name a file") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.RequestInvalidError(
            f"{doing}: {path} is no results.json of a calibration ({type(error).__name__}: {error})",
            remedy="name one that coldsnap calibrate wrote",
        ) from error
    found: dict[str, Any] = document
    return found


def _ceiling(each: Ceiling) -> dict[str, Any]:
    samples = [round(sample) for sample in each.samples]
    return {"name": each.name, "unit": "bytes_per_second", "samples": samples, "median": round(each.median)}


def _ring(setting: Setting, seconds: list[float]) -> dict[str, Any]:
    """Give the seconds that making a ring took: a stage of its own, which no case's time contains."""
    name = f"ring_ready.{setting.chunk_bytes}x{setting.queue_depth}"
    samples = [round(each, 6) for each in seconds]
    return {"name": name, "unit": "seconds", "samples": samples, "median": round(statistics.median(samples), 6)}


def _case(case: Measured, found: list[Ceiling]) -> dict[str, Any]:
    rate = case.nbytes / case.median_s
    bound = bound_of(case, found)
    asked = case.asked
    last = {name: asked.pop(name) for name in ("payload_bytes", "extents", "direct")}
    return {
        **asked,
        "cache": case.cache,
        "place": case.found_place,
        "samples_s": [round(sample, 6) for sample in case.samples_s],
        "median_s": round(case.median_s, 6),
        "bytes_per_second": round(rate),
        "ceiling": bound.name if bound else None,
        "ratio": round(rate / bound.median, 4) if bound else None,
        "limiting_stage": case.limiting_stage,
        "residency_before": [round(fraction, 4) for fraction in case.residency_before],
        **last,
        "asked": {"cache": case.wanted_cache, "place": case.place},
        "processors": case.processors,
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
