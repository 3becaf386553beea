"""The matrix as a page: a waterfall of one start for each cell, and all samples in a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.startup.cells import Cell
from bench.startup.ledger import median, middle, sample_key
from coldsnap._bench.html import page, spans
from coldsnap._bench.sizes import format_size

# A picture has eight colours: phases that nobody would act on apart share one.
_BARS = {
    "interpreter": "imports",
    "imports": "imports",
    "config": "config",
    "workers": "workers",
    "build": "build",
    "weights": "weights",
    "post_processing": "post-processing",
    "profiling": "profiling",
    "graphs": "graphs, warm-up",
    "warm_up": "graphs, warm-up",
    "ready": "graphs, warm-up",
}
_HOW_TO_READ = (
    "One start of each cell: the one in the middle by readiness, so its phases belong together. Where a bar has a gap, the "
    "engine logged nothing that would say what it did. What comes from the log is stamped when the line arrives."
)


def waterfalls_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """For each cell with samples its label, phases and marks.

    Returns:
        ``label``; ``phases``: tuples of a name, its beginning and its end in seconds since the spawn, and its source, by
        time; ``marks``: tuples of a name and seconds.
    """
    found = []
    for cell in document["cells"]:
        key = sample_key(cell)
        start = middle([each for each in document["starts"] if sample_key(each) == key and each["out"] is None])
        if start is not None:
            label = Cell(cell["case"], cell["load_format"], cell["caches"], cell["pages"]).label
            marks = [(name.replace("_", " "), start["marks"][name]["s"]) for name in ("ready", "first_token")]
            found.append({"label": label, "phases": _bars(start), "marks": marks})
    return found


def rows_of(document: dict[str, Any]) -> list[list[str]]:
    """For each cell: case, load format, caches, pages, median readiness, its samples, and medians of the answers' times."""
    rows = []
    for cell in document["cells"]:
        names = [cell[name] for name in ("case", "load_format", "caches", "pages")]
        samples = ", ".join(f"{value:.2f}" for value in cell["ready_s"])
        figures = [median(cell[name]) for name in ("ready_s", "first_token_s", "first_ttft_s", "later_ttft_s")]
        ready, *others = ["-" if value is None else f"{value:.3f}" for value in figures]
        rows.append([*names, ready, samples, *others, cell["out"] or ""])
    return rows


def write(document: dict[str, Any], folder: Path) -> list[Path]:
    """Write the page and its plots; none where there is nothing to draw.

    Raises:
        RequestInvalidError: matplotlib is not installed; nothing was written.
        IoError, NoSpaceError: A file can't be written.
    """
    shown = waterfalls_of(document)
    if not shown:
        return []
    sections = [
        page.Section("The machine", [page.Facts(_facts(document))]),
        page.Section("Where a start's time goes", [page.Text(_HOW_TO_READ), *_plots(shown)]),
        page.Section("Every cell", [page.Table(_TITLES, rows_of(document), _TITLES[4:5] + _TITLES[6:9])]),
    ]
    title = f"Starts of vLLM {document['machine']['versions']['vllm']}"
    return page.write(folder, title, sections, {"startup_matrix.json": json.dumps(document, allow_nan=False)})


_TITLES = (
    "case",
    "format",
    "caches",
    "pages",
    "ready, s",
    "samples, s",
    "first token, s",
    "ttft, s",
    "later, s",
    "out",
)


def _bars(start: dict[str, Any]) -> list[tuple[str, float, float, str]]:
    """The phases that are there, those that share a bar as one where they touch."""
    found: list[tuple[str, float, float, str]] = []
    for phase in start["phases"]:
        if phase["start_s"] is None or phase["name"] not in _BARS:
            continue
        bar = (_BARS[phase["name"]], phase["start_s"], phase["end_s"], phase["source"])
        if found and found[-1][0] == bar[0] and found[-1][2] == bar[1]:
            sources = sorted({*found[-1][3].split(" + "), *bar[3].split(" + ")})
            bar = (bar[0], found.pop()[1], bar[2], " + ".join(sources))
        found.append(bar)
    return found


def _plots(shown: list[dict[str, Any]]) -> list[Any]:
    """A plot for each case, so that its load formats stand below each other on one axis."""
    cases: dict[str, list[Any]] = {}
    for each in shown:
        case, _, rest = each["label"].partition(" ")
        phases = [spans.Phase(name, begin, end) for name, begin, end, _ in each["phases"]]
        marks = [spans.Mark(name, at) for name, at in each["marks"]]
        cases.setdefault(case, []).append(spans.Start(rest, phases, marks))
    return [spans.waterfall(f"startup-{case}", case, "", starts) for case, starts in cases.items()]


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    machine, asked = document["machine"], document["request"]
    gpu = machine["gpu"]
    facts = [
        ("GPU", f"{gpu['name']}, driver {gpu['driver']}" if gpu else "none"),
        ("processor", f"{machine['cores']} cores of {machine['cpu']}, {machine['architecture']}"),
        ("memory", format_size(machine["memory_bytes"])),
        ("system", f"Linux {machine['kernel']}, Python {machine['python']}, {machine.get('file_system', 'unknown')}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in machine["versions"].items())),
        ("commit", document["commit"]),
        ("model", f"{asked['model']}, {format_size(asked['model_bytes'])} of weights"),
        ("engine", json.dumps(asked["engine"])),
    ]
    return facts if document["complete"] else [*facts, ("not complete", document["ended"])]
