"""What a start spent its time on: marks of the starting process, of the asking one, and of the engine's own log.

vLLM is not changed and not told that it is measured. Its log lines are stamped when they arrive; its handler flushes each
of them. A line that carries seconds of its own gives the beginning of what it closes. What a version does not log has no
mark, and a phase without both of its marks is null: never guessed.

The lines are those of vLLM 0.26, by its source, and of 0.32, as recorded; versions differ in which of them they write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = tuple[float, str]  # seconds since the process was spawned, and the text


@dataclass(frozen=True)
class Mark:
    """A moment of a start: seconds since its process was spawned, and who saw it."""

    s: float
    source: str


_SECONDS = r"([\d.]+) s(?:econds|ecs)?\b"
# The last such line counts, since ranks write one each; of the first kind, which begin something, the first.
_BEGINNINGS = {
    # The server's banner, which it writes when all is imported.
    "imported": re.compile(r"vLLM (?:API )?server version |█ +version "),
    "configured": re.compile(r"Initializing a V1 LLM engine \(v"),
    "load_begun": re.compile(r"Starting to load model "),
}
_ENDS = {
    "loaded": re.compile(r"Model loading took "),
    "profiled": re.compile(r"KV cache size: "),
    "graphed": re.compile(r"Graph capturing finished in "),
    "initialised": re.compile(r"init engine \(profile, create kv cache, warmup model\) took "),
}
_WEIGHTS = re.compile(rf"(?:Loading weights took|coldsnap: restored .* in) {_SECONDS}")
# The engine's own figures, where it gives some.
_REPORTED = {
    "build_s": re.compile(rf"Initializing model took {_SECONDS}"),
    "weights_s": re.compile(rf"Loading weights took {_SECONDS}"),
    "restore_s": re.compile(rf"coldsnap: restored .* in {_SECONDS}"),
    "loading_s": re.compile(rf"Model loading took .*?{_SECONDS}"),
    "compile_s": re.compile(rf"torch\.compile (?:took|takes) {_SECONDS}"),
    "graphs_s": re.compile(rf"Graph capturing finished in {_SECONDS}"),
    "init_s": re.compile(rf"init engine \(profile, create kv cache, warmup model\) took {_SECONDS}"),
}
# Each phase, the marks that may begin it (the first one that is there does) and the one that ends it.
_PHASES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("interpreter", ("spawned",), "started"),
    ("imports", ("started", "spawned"), "imported"),
    ("config", ("imported",), "configured"),
    ("workers", ("configured",), "load_begun"),
    ("build", ("load_begun",), "weights_begun"),
    ("weights", ("weights_begun",), "weights_done"),
    ("post_processing", ("weights_done",), "loaded"),
    ("profiling", ("loaded",), "profiled"),
    ("graphs", ("profiled",), "graphed"),
    ("warm_up", ("graphed", "profiled"), "initialised"),
    ("ready", ("initialised",), "ready"),
    ("first_token", ("ready",), "first_token"),
)
NAMES = tuple(name for name, _, _ in _PHASES)


def marks_of(lines: Sequence[Line], stamps: Mapping[str, Mark]) -> dict[str, Mark]:
    """All marks of a start, by time.

    Args:
        lines: The log.
        stamps: What did not come from the log; it goes before what did.
    """
    found = {"spawned": Mark(0.0, "spawn")}
    for s, text in lines:
        for name, pattern in _BEGINNINGS.items():
            if pattern.search(text):
                found.setdefault(name, Mark(s, "log"))
        for name, pattern in _ENDS.items():
            if pattern.search(text):
                found[name] = Mark(s, "log")
        if match := _WEIGHTS.search(text):
            found["weights_begun"] = Mark(max(0.0, s - float(match[1])), "log's seconds")
            found["weights_done"] = Mark(s, "log")
    return dict(sorted((found | stamps).items(), key=lambda item: item[1].s))


def phases_of(marks: Mapping[str, Mark]) -> list[dict[str, Any]]:
    """Each phase with ``start_s`` and ``end_s`` since the spawn, and ``source``; None where a mark is missing.

    Seconds in the log are rounded, so a phase may seem to begin before the one in front of it has ended: it then begins
    where that one ends.
    """
    found = []
    for name, begins, end in _PHASES:
        begin = next((each for each in begins if each in marks), None)
        phase: dict[str, Any] = {"name": name, "start_s": None, "end_s": None, "source": None}
        if begin is not None and end in marks:
            start_s = marks[begin].s
            sources = sorted({marks[begin].source, marks[end].source})
            phase |= {"start_s": start_s, "end_s": max(start_s, marks[end].s), "source": " + ".join(sources)}
        found.append(phase)
    return found


def reported_in(lines: Sequence[Line]) -> dict[str, float]:
    """The engine's own seconds, each by the last line that has them."""
    found = {}
    for name, pattern in _REPORTED.items():
        for _, text in lines:
            if match := pattern.search(text):
                found[name] = float(match[1])
    return found


def coldsnap_lines(lines: Sequence[Line]) -> list[str]:
    """What coldsnap said in the log, without the engine's prefix."""
    return [text[text.index("coldsnap: ") :].strip() for _, text in lines if "coldsnap: " in text]
