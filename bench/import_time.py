"""Question: what does `import coldsnap` cost a process that already starts Python?  Target: at most 0.1 s, no torch.

Starts fresh interpreters in turns, bare ones and ones that import coldsnap from this program's own search path, and
takes the difference of the medians. File caches are warm: a first, unmeasured pair of starts sees to that.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from coldsnap import errors
from coldsnap._bench import flagset, machine, results

BARE = "pass"
IMPORT = "import coldsnap"
# What a plain import must not pull in; the answer of the last import decides.
_LOADED = "import coldsnap, sys; print(sorted({'torch', 'numpy', 'vllm', 'sglang', 'rich', 'absl'} & set(sys.modules)))"


def main(argv: Sequence[str]) -> int:
    """Measure, print one line, and with --output write import_time.json.

    Args:
        argv: The program's name, then the flags.
    Returns:
        0; 2 for a wrong flag; 1 if `import coldsnap` fails. Failures are one sentence on stderr.
    """
    values = flags.FlagValues()
    flags.DEFINE_string("samples", "20", "interpreters of each kind", flag_values=values)
    flags.DEFINE_string("output", None, "folder for import_time.json", flag_values=values)
    usage = f"{__doc__}\nexample: bazel run //bench:import_time -- --samples=20 --output=results"
    return flagset.run(values, argv, usage, lambda: _measure_and_print(values))


def _measure_and_print(values: flags.FlagValues) -> int:
    samples = flagset.whole_number(values, "samples", 1, 1000)
    output = values["output"].value
    folder = None if output is None else flagset.user_path("output", output)
    document = measure(samples)
    written = None if folder is None else results.write_json(folder, "import_time.json", document)
    net_s = document["import_s"]
    where = "" if written is None else f"; results: {written}"
    bare_s = document["cases"][0]["median_s"]
    loaded = ", ".join(document["loaded"]) or "none of the heavy ones"
    print(
        f"import coldsnap: {net_s * 1e3:.1f} ms above a bare interpreter's {bare_s * 1e3:.1f} ms, median of {samples}; "
        f"loaded with it: {loaded}{where}"
    )
    return 0


def measure(samples: int) -> dict[str, Any]:
    """Take `samples` of each kind in turns; times in seconds.

    Raises:
        InternalError: An interpreter did not end well; the message has its last line.
    """
    taken: dict[str, list[float]] = {BARE: [], IMPORT: []}
    for round_number in range(samples + 1):
        for code, times in taken.items():
            wall_s, _ = _start(code)
            if round_number:
                times.append(wall_s)
    _, loaded = _start(_LOADED)
    cases = [
        {"operation": code, "samples_s": [round(each, 6) for each in times], "median_s": round(_median(times), 6)}
        for code, times in taken.items()
    ]
    return {
        "format": results.FORMAT,
        "commit": machine.commit_or_version(),
        "machine": machine.machine_record("host", None),
        "import_s": round(_median(taken[IMPORT]) - _median(taken[BARE]), 6),
        "loaded": [word.strip("'") for word in loaded.strip().strip("[]").split(", ") if word],
        "cases": cases,
    }


def _start(code: str) -> tuple[float, str]:
    """Run one interpreter; give its wall time in seconds and its output."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - begun
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise errors.InternalError(f"run python -c {code!r}: exit code {done.returncode}: {last}")
    return wall_s, done.stdout


def _median(times: list[float]) -> float:
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
