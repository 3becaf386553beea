"""Question: what does a start of vLLM spend its time on, by topology, by load format, from cold and from warm caches?

Each start is a fresh process of an unchanged vLLM: `vllm.LLM` within its process (inproc), with processes of its own
(multiproc), or the standard HTTP server (serve); with all towers of a multimodal model (full), or as a text model (text).
Its cache folders are bound and counted, its page cache is proved, and every answer is compared with the others' of its
case: other tokens end in exit code 4. Samples are taken in turns, and every one is kept.

Beside the machine's own vLLM and coldsnap nothing is needed. Without --model a tiny one is made on the spot.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Started as a plain file, Python looks for modules in bench/ and not in the folder above it.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from absl import flags

from bench.startup import cells, ledger, matrix
from coldsnap import calibrate, errors
from coldsnap._bench import flagset, workspace

_EXAMPLES = """\
examples:
  bazel run //bench:vllm_startup_matrix -- --cases inproc-full serve-full --output=results
  python3 bench/vllm_startup_matrix.py --model=/models/qwen3 --formats=auto,coldsnap --pages=cold,warm --output=results
  python3 bench/vllm_startup_matrix.py --minutes=9 --work=/var/tmp/matrix --output=results --resume
"""


def main(argv: Sequence[str]) -> int:
    """Measure.

    Args:
        argv: The program's name, then the flags; those with lists take ``--cases A B`` as well as ``--cases=A,B``.
    Returns:
        0; 2 for a wrong flag; 3 where nothing could be measured; 4 when a start answered with other tokens; 5 when vLLM
        can't be asked what it is; 130 or 143 after a signal, with what was measured kept.
    """
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("model", None, "a checkpoint's folder, with safetensors files (a tiny one)", **common)
    flags.DEFINE_list("cases", list(cells.CASES), f"of {', '.join(cells.CASES)} (all)", **common)
    flags.DEFINE_list("formats", None, "load formats (auto, coldsnap and the peers that are installed)", **common)
    flags.DEFINE_list("caches", ["cold", "warm"], "states of the engine's cache folders (cold,warm)", **common)
    flags.DEFINE_list("pages", ["warm"], "states of the page cache of checkpoint and artifact (warm)", **common)
    flags.DEFINE_string("repeats", "3", "samples of each cell (3)", **common)
    flags.DEFINE_string("requests", "4", "requests to each engine, one after the other (4)", **common)
    flags.DEFINE_string("tokens", "16", "tokens of each answer (16)", **common)
    flags.DEFINE_string("engine", "{}", "more arguments of vllm.LLM, as JSON", **common)
    flags.DEFINE_string("limit_s", "900", "seconds for one start, before it is ended (900)", **common)
    flags.DEFINE_string("minutes", None, "begin no start that would not be over by then (no end)", **common)
    flags.DEFINE_string("device", "auto", "auto (cuda:0 if it is there) or host: of the machine's record", **common)
    flags.DEFINE_string(
        "work", None, "folder that keeps artifacts and warm caches for --resume (one that goes)", **common
    )
    flags.DEFINE_string("output", None, f"folder for {ledger.FILE} and the report (none is written)", **common)
    flags.DEFINE_string(
        "draw", None, f"draw the report of a {ledger.FILE} into --output; nothing is measured", **common
    )
    flags.DEFINE_boolean("resume", False, "go on with what --output has", **common)
    flags.DEFINE_string("commit", None, "commit of a measured wheel (of a checkout: git's)", **common)
    usage = f"{__doc__}\n{_EXAMPLES}\nflags:\n" + "\n".join(f"  --{name}=...  {values[name].help}" for name in values)
    with workspace.signals_raise():
        try:
            return flagset.run(values, cells.joined(argv), usage, lambda: _work(values))
        except workspace.Interrupted as error:
            workspace.remove_folders()
            print(f"vllm_startup_matrix: {error}; what was measured is kept where --output is given", file=sys.stderr)
            return error.exit_code


def _work(values: flags.FlagValues) -> int:
    request = _request(values)
    if values["draw"].value is None:
        return matrix.measure(request)
    if request.output is None:
        raise errors.RequestInvalidError("read --draw: there is no --output to draw to", remedy="name its folder")
    matrix.draw(flagset.user_path("draw", values["draw"].value), request.output)
    return 0


def _request(values: flags.FlagValues) -> matrix.Request:
    get: dict[str, Any] = {name: values[name].value for name in values}
    if get["resume"] and get["output"] is None:
        raise errors.RequestInvalidError("read --resume: there is no --output to go on with", remedy="name its folder")
    return matrix.Request(
        model=_model(get["model"]),
        cases=cells.checked("--cases", get["cases"], cells.CASES),
        formats=None if get["formats"] is None else cells.checked("--formats", get["formats"], None),
        caches=cells.checked("--caches", get["caches"], cells.STATES),
        pages=cells.checked("--pages", get["pages"], cells.STATES),
        repeats=flagset.whole_number(values, "repeats", 1, 100),
        requests=flagset.whole_number(values, "requests", 1, 100),
        tokens=flagset.whole_number(values, "tokens", 1, 1000),
        engine=_json_object("engine", get["engine"]),
        limit_s=flagset.whole_number(values, "limit_s", 1, 86400),
        minutes=None if get["minutes"] is None else flagset.whole_number(values, "minutes", 1, 10000),
        device=get["device"],
        work=_path("work", get["work"]),
        output=_path("output", get["output"]),
        resume=get["resume"],
        commit=calibrate.commit_of(get["commit"]),
    )


def _model(text: str | None) -> Path | None:
    path = _path("model", text)
    if path is not None and not path.is_dir():
        raise errors.RequestInvalidError(f"read --model={text}: it is no folder", remedy="name a checkpoint's folder")
    return path


def _path(flag: str, text: str | None) -> Path | None:
    return None if text is None else flagset.user_path(flag, text)


def _json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise errors.RequestInvalidError(f"read --{flag}={text}: {error}", remedy="give a JSON object") from error
    if not isinstance(found, dict):
        raise errors.RequestInvalidError(f"read --{flag}={text}: it is no object", remedy="give a JSON object")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv))
