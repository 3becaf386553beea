"""Two calibrations compared: with itself, with one whose direct reads are made slow, and with what can't be compared."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.calibrate.helpers import calibrate, left_in

FLAGS = ("--bytes=16MiB", "--samples=5", "--device=host", "--cache=cold,warm", "--operations=hydrate", "--noreport")
# Delays each read past the page cache that the core makes. The ceilings read by preadv, so they stay as they are.
SLOW_READS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int delayed;

ssize_t pread(int fd, void* into, size_t nbytes, off_t offset) {
  ssize_t (*real)(int, void*, size_t, off_t) = (ssize_t (*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  if (fcntl(fd, F_GETFL) & O_DIRECT) {
    __atomic_add_fetch(&delayed, 1, __ATOMIC_RELAXED);
    usleep(50000);
  }
  return real(fd, into, nbytes, offset);
}

__attribute__((destructor)) static void tell(void) {
  FILE* file = fopen(getenv("SLOW_READS_FIRED"), "w");
  fprintf(file, "%d", delayed);
  fclose(file);
}
"""

REFUSED = [
    (["--compare=none.json"], "read none.json: No such file"),
    (["--compare=word.json"], "word.json is no results.json of a calibration"),
    (["--compare=list.json"], "list.json is no results.json of a calibration"),
    (["--compare=other.json"], "it moves 16777216 bytes"),
    (["--compare=other.json", "--measured=none.json"], "none.json"),
    (["--fail_if_slower"], "give --compare=EARLIER.json too"),
    (["--measured=other.json"], "give --compare=EARLIER.json too"),
    (["--resume"], "No such file"),
    (["--minutes=0"], "0.05 to 1440"),
    (["--minutes=x"], "0.05 to 1440"),
    (["--operations=verify"], "hydrate,capture"),
]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results.json of a calibration."""
    folder = tmp_path_factory.mktemp("earlier")
    done = calibrate(*FLAGS, f"--path={folder}", f"--output={folder}")
    assert done.returncode == 0, done.stderr
    return folder / "results.json"


def compared(one: Path, other: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return calibrate(f"--compare={one}", f"--measured={other}", *flags)


def changed(results: Path, to: Path, factor: float) -> Path:
    """The same results with each direct restore so many times as long."""
    document = json.loads(results.read_text())
    for case in document["cases"]:
        if case["route"] == "direct":
            case["samples_s"] = [sample * factor for sample in case["samples_s"]]
    to.write_text(json.dumps(document))
    return to


def test_with_itself_nothing_is_faster_or_slower(earlier: Path) -> None:
    done = compared(earlier, earlier, "--fail_if_slower")
    assert done.returncode == 0, done.stderr
    last = next(line for line in done.stdout.splitlines() if line.startswith("of "))
    assert "0 faster, 0 slower, " in last
    assert last.startswith(f"of {len(json.loads(earlier.read_text())['cases'])} cases: ")


def test_slower_is_said_and_fails_if_that_was_asked_for(earlier: Path, tmp_path: Path) -> None:
    slow = changed(earlier, tmp_path / "slow.json", 20)
    done = compared(earlier, slow)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(line.startswith("slower ") and "hydrate direct cold" in line for line in done.stdout.splitlines())
    done = compared(earlier, slow, "--fail_if_slower")
    assert done.returncode == 3
    assert "cases are slower, hydrate direct " in done.stderr
    done = compared(slow, earlier, "--fail_if_slower")
    assert done.returncode == 0
    assert "faster" in done.stdout


def test_runs_of_the_same_thing_are_not_told_apart(earlier: Path, tmp_path: Path) -> None:
    """Of real measurements, on whatever machine and beside whatever load this is, each compared with the one before it.

    95 % of intervals hold what they are for, so a single verdict may be wrong; one that has a reason comes again.
    """
    before, told_apart, count = earlier, collections.Counter[tuple[str, str]](), 0
    for number in range(4):
        out = tmp_path / str(number)
        done = calibrate(*FLAGS, f"--compare={before}", f"--path={tmp_path}", f"--output={out}")
        assert done.returncode == 0, done.stderr
        rows = json.loads((out / "results.json").read_text())["comparison"]
        # The setting for the drive is that of the run before, so every case has its counterpart.
        assert len(rows) == len(json.loads(before.read_text())["cases"])
        told_apart.update((row["case"], row["verdict"]) for row in rows if row["verdict"] not in ("same", "unclear"))
        before, count = out / "results.json", count + len(rows)
    assert max(told_apart.values(), default=0) <= 1, told_apart
    assert told_apart.total() <= count // 10, told_apart


def test_a_route_whose_reads_are_slow_is_seen(earlier: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) to make reads slow with")
    if not any(
        case["route"] == "direct" and case["cache"] == "cold" for case in json.loads(earlier.read_text())["cases"]
    ):
        pytest.skip("direct reads of a cold file do not work here")
    (tmp_path / "slow.c").write_text(SLOW_READS)
    library = tmp_path / "slow.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "slow.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    fired = tmp_path / "fired"
    flags = (*FLAGS, f"--compare={earlier}", f"--path={tmp_path}", f"--output={tmp_path / 'out'}")
    done = calibrate(*flags, LD_PRELOAD=str(library), SLOW_READS_FIRED=str(fired))
    assert done.returncode == 0, done.stderr
    assert int(fired.read_text()) > 0
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    verdicts = {row["case"]: row["verdict"] for row in document["comparison"]}
    slow = {verdict for case, verdict in verdicts.items() if case.startswith("hydrate direct cold")}
    assert slow == {"slower"}, document["comparison"]
    assert "direct cold" in done.stdout
    assert document["drive"] == json.loads(earlier.read_text())["drive"]  # else there would be nothing to compare


@pytest.mark.parametrize(("flags", "says"), REFUSED, ids=[" ".join(flags) for flags, _ in REFUSED])
def test_what_it_refuses_before_anything_is_written(earlier: Path, tmp_path: Path, flags: list[str], says: str) -> None:
    (tmp_path / "word.json").write_text("word")
    (tmp_path / "list.json").write_text("[]")
    shutil.copy(earlier, tmp_path / "other.json")
    before: Any = left_in(tmp_path)
    given = ["--bytes=2MiB", "--device=host", f"--path={tmp_path}", f"--output={tmp_path}", *flags]
    done = calibrate(*given, BUILD_WORKING_DIRECTORY=str(tmp_path))
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert says.replace("none.json:", f"{tmp_path}/none.json:") in done.stderr
    assert left_in(tmp_path) == before
