"""The matrix on the terminal: one line for each cell, medians in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.startup.ledger import median

_COLUMNS = ("imports", "config", "workers", "build", "weights", "post_processing", "profiling", "graphs", "warm_up")
_HEADS = ("import", "config", "worker", "build", "weight", "post", "profile", "graph", "warmup")


def lines_of(document: dict[str, Any]) -> Iterator[str]:
    """The table of a document; ``-`` stands for what the engine does not log, and for what was not measured."""
    heads = " ".join(f"{head:>7}" for head in (*_HEADS, "ready", "first", "ttft", "later"))
    yield f"{'case':<15}{'format':<16}{'caches':<7}{'pages':<6}{'n':>2} {heads}"
    for cell in document["cells"]:
        phases = [median(cell["phases_s"][name]) for name in _COLUMNS]
        whole = [median(cell[name]) for name in ("ready_s", "first_token_s", "first_ttft_s", "later_ttft_s")]
        figures = " ".join(f"{'-' if value is None else f'{value:.2f}':>7}" for value in (*phases, *whole))
        names = f"{cell['case']:<15}{cell['load_format']:<16}{cell['caches']:<7}{cell['pages']:<6}"
        yield f"{names}{len(cell['ready_s']):>2} {figures}"
    yield "medians in seconds; ready, first: since the spawn; ttft, later: of the first request and of those after it"
    for cell in document["cells"]:
        if cell["out"]:
            yield f"OUT: {cell['case']} {cell['load_format']}, caches {cell['caches']}, pages {cell['pages']}: {cell['out']}"
    for each in document["not_applicable"]:
        yield f"not applicable: {each['case']}: {each['reason']}"
    if not document["complete"]:
        yield f"NOT COMPLETE: {document['ended']}; --resume goes on"
