"""The soak itself, over planted parts: it goes on until its time is over, a part fails, or Ctrl-C."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests import seeds, soak

GOOD = 'echo "$COLDSNAP_TEST_SEED $*" >>"$0.seeds"\necho "<t><testcase/><testcase/></t>" >"$XML_OUTPUT_FILE"\n'
ENDLESS = 'echo $$ >"$0.pid"\nsleep 600 &\necho $! >>"$0.pid"\nwait\n'


class Planted:
    """Programs in runfiles of the test's own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.summary = root / "kept" / "soak.json"
        (root / "planted").mkdir()

    def part(self, name: str, body: str, *arguments: str) -> soak.Part:
        program = self.root / "planted" / name
        program.write_text(f"#!/bin/bash\n{body}")
        program.chmod(0o755)
        return soak.Part(name, f"//planted:{name}", arguments)

    def seen(self, name: str) -> list[str]:
        return (self.root / "planted" / f"{name}.seeds").read_text().splitlines()

    def soak(self, *every: soak.Part, minutes: float = 1, seed: int = 7) -> tuple[int, dict[str, Any]]:
        status = soak.main([f"--minutes={minutes}", f"--seed={seed}", f"--summary={self.summary}"], every)
        return status, json.loads(self.summary.read_text())


@pytest.fixture
def planted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    monkeypatch.setenv("RUNFILES_ROOT", str(tmp_path))
    return Planted(tmp_path)


def wait_until_gone(pids: list[int]) -> None:
    """Until nothing runs by these numbers; a killed process that nobody has reaped yet runs no more."""
    end = time.monotonic() + 30
    for pid in pids:
        while (state := pathlib.Path(f"/proc/{pid}/stat")).exists() and state.read_text().rpartition(")")[2][1] != "Z":
            assert time.monotonic() < end, f"process {pid} goes on"
            time.sleep(0.01)


def test_it_stops_at_the_first_failure(planted: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    third = '[[ $(wc -l <"$0.seeds") -lt 3 ]] || { echo the planted one; exit 9; }\n'
    status, found = planted.soak(
        planted.part("good", GOOD), planted.part("bad", GOOD + third, "--x={seed}"), planted.part("last", GOOD)
    )
    assert (status, found["ended"], found["whole_rounds"]) == (1, "failure", 2)
    assert [(part["name"], part["runs"], part["cases"]) for part in found["parts"]] == [
        *(("good", 3, 6), ("bad", 2, 4), ("last", 2, 4))
    ]
    seed = planted.seen("bad")[-1].split()[0]
    again = (
        f"./bazelw test --nocache_test_results --test_env={seeds.VARIABLE}={seed} --test_arg=--x={seed} //planted:bad"
    )
    assert found["failure"]["command"] == again
    assert (found["failure"]["seed"], found["failure"]["name"]) == (int(seed), "bad")
    printed = capsys.readouterr().out
    assert again in printed
    assert "the planted one" in printed
    assert f"round 3: bad, seed {seed}" in printed


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("true", "ended with status 0, 0 cases passed, 0 failed"),  # nothing ran
        ('echo "<t><testcase><failure/></testcase></t>" >"$XML_OUTPUT_FILE"', "status 0, 0 cases passed, 1 failed"),
        ("kill -9 $$", "ended with status -9"),
    ],
)
def test_what_counts_as_a_failure(planted: Planted, body: str, what: str) -> None:
    status, found = planted.soak(planted.part("bad", body))
    assert status == 1
    assert what in found["failure"]["what"]


def test_what_hangs_is_a_failure(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "HANGS_AFTER_S", 0.5)
    status, found = planted.soak(planted.part("endless", ENDLESS))
    assert (status, found["failure"]["what"]) == (1, "hangs: it was stopped after 0.5 s")
    wait_until_gone([int(pid) for pid in (planted.root / "planted" / "endless.pid").read_text().split()])


def test_seeds_follow_from_the_one_that_is_given(planted: Planted) -> None:
    drawn = []
    for seed in (7, 7, 8):
        (planted.root / "planted" / "good.seeds").unlink(missing_ok=True)
        ends = planted.part("good", GOOD + '[[ $(wc -l <"$0.seeds") -lt 4 ]]\n', "--seed={seed}")
        assert planted.soak(ends, seed=seed)[0] == 1
        drawn.append(planted.seen("good"))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 4
    assert all(line.split()[1] == f"--seed={line.split()[0]}" for line in drawn[0])


def test_the_time_ends_also_what_is_under_way(planted: Planted) -> None:
    status, found = planted.soak(planted.part("good", GOOD), planted.part("endless", ENDLESS), minutes=1 / 30)
    assert (status, found["ended"], found["failure"]) == (0, "time", None)
    assert 2 <= found["seconds"] < 30
    assert [part["runs"] for part in found["parts"]] == [1, 0]
    wait_until_gone([int(pid) for pid in (planted.root / "planted" / "endless.pid").read_text().split()])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_summary_and_no_process(planted: Planted, number: signal.Signals) -> None:
    planted.part("good", GOOD), planted.part("endless", ENDLESS)
    program = (
        "import sys; from tests import soak; every = [soak.Part(n, '//planted:' + n) for n in ('good', 'endless')];"
        "sys.exit(soak.main(sys.argv[1:], every))"
    )
    pids = planted.root / "planted" / "endless.pid"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program, f"--summary={planted.summary}"], env=environ) as running:
        while running.poll() is None and not (pids.exists() and len(pids.read_text().split()) == 2):
            time.sleep(0.01)
        running.send_signal(number)
        assert running.wait(60) == 130
    found = json.loads(planted.summary.read_text())
    assert (found["ended"], [part["runs"] for part in found["parts"]]) == ("interrupted", [1, 0])
    wait_until_gone([int(pid) for pid in pids.read_text().split()])


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "x"])
def test_a_limit_is_needed(planted: Planted, minutes: str) -> None:
    with pytest.raises(SystemExit) as refused:
        soak.main([f"--minutes={minutes}"], [planted.part("good", GOOD)])
    assert refused.value.code == 2


def test_every_part_is_a_test_of_its_own() -> None:
    every = soak.parts()
    assert len({part.target for part in every}) == len({part.name for part in every}) == len(every)
