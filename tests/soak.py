"""`./bazelw run //tests:soak -- --minutes=30 --seed=7`: what the tests draw at random, with other seeds, for hours.

Test programs run as they are, one after the other, round after round, each with a seed of its own that follows from
``--seed``. It ends when the time is over, with the first failure, whose command it prints, or by SIGINT (Ctrl-C) and
SIGTERM. At the end, whatever that was, a summary is printed and written as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from tests import seeds
from tools.ci import summary

HANGS_AFTER_S = 900.0  # no part takes a tenth of it
_LOOK_S = 0.1
_SHOWN_CHARACTERS = 12_000  # of a failed part's output, from its end
_HYPOTHESIS = ("--hypothesis-seed={seed}",)
_ENDS = {"time": 0, "failure": 1, "interrupted": 128 + signal.SIGINT}


@dataclasses.dataclass
class Part:
    """A test program, and what came of it so far.

    Attributes:
        name: For people.
        target: Its label; the program is in the runfiles.
        arguments: What it is given; ``{seed}`` stands for the seed. Besides, every part has it in the environment.
        runs: How often it ended well.
        cases: Of these runs.
        seconds: Of these runs, by the monotonic clock.
    """

    name: str
    target: str
    arguments: tuple[str, ...] = ()
    runs: int = 0
    cases: int = 0
    seconds: float = 0.0

    def given(self, seed: int) -> list[str]:
        """The arguments with a seed."""
        return [argument.format(seed=seed) for argument in self.arguments]

    def again(self, seed: int) -> str:
        """The command that repeats a run."""
        arguments = "".join(f" --test_arg={argument}" for argument in self.given(seed))
        variable = f"--test_env={seeds.VARIABLE}={seed}"
        return f"./bazelw test --nocache_test_results {variable}{arguments} {self.target}"


def parts() -> list[Part]:
    """What is random already, in the order of a round."""
    return [
        Part("restore stress", "//tests/stress:restore_stress_test_host"),
        Part("forks", "//tests/stress:fork_test"),
        Part("store stress", "//tests/capture:store_stress_test"),
        Part("power cuts", "//tests/power:power_test"),
        Part("power cuts, store", "//tests/power:store_power_test"),
        Part("kills", "//tests/faults:kill_test"),
        Part("kills, taken up", "//tests/faults:resume_test"),
        Part("fuzz, formats", "//tests/fuzz:reader_fuzz_test", ("--seconds=20", "--seed={seed}")),
        Part("fuzz, requests", "//tests/request:fuzz_test"),
        Part("hostile damage", "//cc/artifact:hostile_manifest_test"),
        Part("plans of restores", "//cc/hydrate:plan_test"),
        Part("plans of captures", "//cc/capture:plan_test"),
        Part("properties, format", "//tests/format:safetensors_test", _HYPOTHESIS),
        Part("properties, captures", "//tests/capture:round_trip_test", _HYPOTHESIS),
    ]


class FailedError(Exception):
    """A part ended badly: ``what`` says how, ``command`` repeats it."""

    def __init__(self, part: Part, seed: int, what: str, output: str) -> None:
        super().__init__(what)
        self.part, self.seed, self.what, self.output = part, seed, what, output


class Limit:
    """When a soak ends: after some seconds, or by a signal. Within its ``with`` block signals only set it."""

    def __init__(self, seconds: float) -> None:
        self._until, self._signalled = time.monotonic() + seconds, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Limit:
        # Not KeyboardInterrupt, which can come when a process was started and nobody holds it yet.
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signal(self, *_: object) -> None:
        self._signalled = True

    @property
    def reached(self) -> str:
        """Why it is to end, a key of ``_ENDS``; empty as long as it is not."""
        return "interrupted" if self._signalled else "time" if time.monotonic() >= self._until else ""


def run(part: Part, seed: int, limit: Limit) -> bool:
    """Run a part once and add to its counts; False if the limit was reached before its end.

    Args:
        part: What to run.
        seed: Its seed, of 32 bits.
        limit: When it is stopped.
    Raises:
        FailedError: It ended with another status than 0, ran no case, or hangs.
    """
    root = pathlib.Path(os.environ["RUNFILES_ROOT"])
    with tempfile.TemporaryDirectory(prefix="coldsnap-soak-") as temporary:
        folder = pathlib.Path(temporary)
        xml, log, begin = folder / "test.xml", folder / "log", time.monotonic()
        environ = {
            "COLDSNAP_TEST_DEVICE": "host",
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "RUNFILES_DIR": str(root.parent),
            "TEST_TMPDIR": temporary,
            "XML_OUTPUT_FILE": str(xml),
            seeds.VARIABLE: str(seed),
        }
        command = [str(root / part.target.removeprefix("//").replace(":", "/")), *part.given(seed)]
        with log.open("wb") as out:
            status = _status(command, root, environ, out, limit)
        output = log.read_text(errors="replace")
        if status is None:
            if limit.reached:
                return False
            raise FailedError(part, seed, f"hangs: it was stopped after {HANGS_AFTER_S:g} s", output)
        count = summary.cases_of(xml.read_text(errors="replace") if xml.is_file() else "")
        if status or count.failed or not count.passed:
            what = f"ended with status {status}, {count.passed} cases passed, {count.failed} failed"
            raise FailedError(part, seed, what, output)
        part.runs, part.cases = part.runs + 1, part.cases + count.passed
        part.seconds += time.monotonic() - begin
        return True


def _status(command: list[str], root: pathlib.Path, environ: dict[str, str], out: Any, limit: Limit) -> int | None:
    """The status of a command; None if it was stopped, at the limit or as it hangs, and then nothing of it is left."""
    hangs = time.monotonic() + HANGS_AFTER_S
    # A process group of its own: what is stopped goes with all its children.
    with subprocess.Popen(
        command, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0
    ) as child:
        while not limit.reached and time.monotonic() < hangs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_LOOK_S)
        os.killpg(child.pid, signal.SIGKILL)
        return None


def soak(every: Sequence[Part], seed: int, limit: Limit) -> tuple[str, FailedError | None]:
    """Rounds of the parts until the limit or a failure: why it ended, a key of ``_ENDS``."""
    draw = random.Random(seed)
    try:
        for number in itertools.count(1):
            for part in every:
                own = draw.getrandbits(32)
                print(f"round {number}: {part.name}, seed {own}", flush=True)
                if not run(part, own, limit):
                    return limit.reached, None
    except FailedError as failure:
        return "failure", failure
    raise AssertionError("rounds have no end of their own")


def account(
    every: Sequence[Part], seed: int, ended: str, seconds: float, failure: FailedError | None
) -> dict[str, Any]:
    """The summary."""
    found: dict[str, Any] = {
        "format": 1,
        "seed": seed,
        "ended": ended,
        "seconds": round(seconds, 1),
        "whole_rounds": min(part.runs for part in every),
        "cases": sum(part.cases for part in every),
        "parts": [
            {
                "name": part.name,
                "target": part.target,
                "runs": part.runs,
                "cases": part.cases,
                "seconds": round(part.seconds, 1),
            }
            for part in every
        ],
        "failure": None,
    }
    if failure is not None:
        command = failure.part.again(failure.seed)
        found["failure"] = {"name": failure.part.name, "seed": failure.seed, "what": failure.what, "command": command}
    return found


def main(arguments: Sequence[str], every: Sequence[Part] | None = None) -> int:
    """Soak and say what came of it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0, help="end after so many (default: 30)")
    parser.add_argument("--seed", type=int, help="what all seeds follow from (default: another one each time)")
    parser.add_argument("--summary", type=pathlib.Path, help="where to write it (default: .build/soak.json)")
    flags = parser.parse_args(arguments)
    if not flags.minutes > 0:
        parser.error(f"--minutes={flags.minutes:g}: more than 0 is needed")
    every = parts() if every is None else every
    seed = random.SystemRandom().getrandbits(32) if flags.seed is None else flags.seed
    target = flags.summary or pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), ".build", "soak.json")
    print(f"soak: {flags.minutes:g} minutes of {len(every)} parts with --seed={seed}")
    begin = time.monotonic()
    with Limit(60 * flags.minutes) as limit:
        ended, failure = soak(every, seed, limit)
    found = account(every, seed, ended, time.monotonic() - begin, failure)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for part in every:
        print(f"{part.name}: {part.runs} runs, {part.cases} cases, {part.seconds:.0f} s")
    if failure is not None:
        print(failure.output[-_SHOWN_CHARACTERS:])
        print(f"FAILED: {failure.part.name} {failure.what}; again:\n  {failure.part.again(failure.seed)}")
    print(f"soak: {found['cases']} cases in {found['seconds']:.0f} s, ended by {ended}; {target}")
    return _ENDS[ended]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
