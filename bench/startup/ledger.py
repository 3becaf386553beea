"""The results document of a matrix: every start in its order, written after each, so that a run can be taken up again.

`starts` holds what happened, `cells` what follows from it. A run that ended early leaves ``complete: false`` and why;
one with ``--resume`` goes on where the document ends, if it measures the same thing on the same machine.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.startup.cells import Cell
from bench.startup.phases import NAMES
from coldsnap import errors
from coldsnap._bench import results

FILE = "startup_matrix.json"
FORMAT = 1
_SAME = ("format", "commit", "machine", "request", "variables")  # what a run that goes on must have in common


class Ledger:
    """Collects starts, and writes the document after each.

    Args:
        head: The keys of the document that are known before the first start, among them those of a comparison at resume.
        cells: Of the matrix.
        folder: For the document; None: none is written.
    """

    def __init__(self, head: dict[str, Any], cells: Sequence[Cell], folder: Path | None) -> None:
        self._head, self._cells, self._folder = head, cells, folder
        self.starts: list[dict[str, Any]] = []
        self.ended: str | None = "it is not over yet"

    def take_up(self) -> int:
        """Go on from the document in the folder, if there is one that is not complete.

        Returns:
            How many starts it has.
        Raises:
            RequestInvalidError: It is of another run; the message has the first difference.
        """
        assert self._folder is not None
        path = self._folder / FILE
        if not path.exists():
            return 0
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
            for name in _SAME:
                _require_equal(path, name, earlier[name], json.loads(json.dumps(self._head[name])))
            self.starts = list(earlier["starts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, errors.Error):
                raise
            raise errors.RequestInvalidError(
                f"go on with {path}: it is no {FILE}: {error}", remedy="give another --output, or leave --resume out"
            ) from error
        return len(self.starts)

    def add(self, record: dict[str, Any]) -> None:
        """Append a start, and write the document."""
        self.starts.append({"number": len(self.starts) + 1, **record})
        self.write()

    def samples(self, cell: Cell) -> list[dict[str, Any]]:
        """The starts of a cell that count."""
        return [start for start in self.of(cell) if start["out"] is None]

    def of(self, cell: Cell) -> list[dict[str, Any]]:
        """The sample starts of a cell, also those that don't count."""
        key = (cell.case, cell.load_format, cell.caches, cell.pages)
        return [start for start in self.starts if sample_key(start) == key]

    def others(self) -> list[dict[str, Any]]:
        """Starts that answered with other tokens than the first one of their case, which loaded normally if any did."""
        first: dict[str, Any] = {}
        served = [start for start in self.starts if start["ids"]]
        for start in sorted(served, key=lambda start: start["load_format"] != "auto"):
            first.setdefault(start["case"], start["ids"])
        return [start for start in served if start["ids"] != first[start["case"]]]

    def document(self) -> dict[str, Any]:
        """All of it, as it is written."""
        return {
            **self._head,
            "complete": self.ended is None,
            "ended": self.ended,
            "cells": [self._cell(cell) for cell in self._cells],
            "starts": self.starts,
        }

    def write(self) -> Path | None:
        """Write the document: whole or not at all."""
        if self._folder is None:
            return None
        return results.write_json(self._folder, FILE, self.document())

    def _cell(self, cell: Cell) -> dict[str, Any]:
        samples = self.samples(cell)
        return {
            "case": cell.case,
            "load_format": cell.load_format,
            "caches": cell.caches,
            "pages": cell.pages,
            "ready_s": [_mark(start, "ready") for start in samples],
            "first_token_s": [_mark(start, "first_token") for start in samples],
            "first_ttft_s": [start["ttft_s"][0] for start in samples],
            "later_ttft_s": [each for start in samples for each in start["ttft_s"][1:]],
            "phases_s": {name: [_length(start, name) for start in samples] for name in NAMES},
            "out": self._why_out(cell),
        }

    def _why_out(self, cell: Cell) -> str | None:
        """Why the case and load format of a cell fell out: nothing of the two is started after that."""
        key = (cell.case, cell.load_format)
        outs: list[str | None] = [start["out"] for start in self.starts if (start["case"], start["load_format"]) == key]
        return outs[-1] if outs else None


def sample_key(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What a start, or an entry of `cells`, is a sample of; starts that prepare have no caches and no pages."""
    return tuple(entry[name] for name in ("case", "load_format", "caches", "pages"))


def middle(samples: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The sample in the middle by readiness: a real start, which a mean of phases would not be."""
    ordered = sorted(samples, key=lambda start: _mark(start, "ready"))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def median(values: Sequence[float | None]) -> float | None:
    """Of those that are there; None where none is."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _mark(start: dict[str, Any], name: str) -> float:
    return float(start["marks"][name]["s"])


def _length(start: dict[str, Any], name: str) -> float | None:
    """Seconds of a phase; None where the engine did not log it."""
    phase = next(each for each in start["phases"] if each["name"] == name)
    return None if phase["start_s"] is None else round(phase["end_s"] - phase["start_s"], 4)


def _require_equal(path: Path, name: str, earlier: Any, now: Any) -> None:
    """Raise with the first difference between two values of the document."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in [*earlier, *(key for key in now if key not in earlier)]:
            _require_equal(path, f"{name}.{key}", earlier.get(key), now.get(key))
    elif earlier != now:
        raise errors.RequestInvalidError(
            f"go on with {path}: {name} was {earlier!r} and is {now!r}",
            remedy="ask for what it measured, or leave --resume out to begin anew",
        )
