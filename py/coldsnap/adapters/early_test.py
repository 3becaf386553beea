"""What a command line restored last is read ahead at its next launch, until a worker needs the drive for itself."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import coldsnap
from coldsnap import _native, settings
from coldsnap._bench import cache
from coldsnap.adapters import early
from coldsnap.adapters.filling import Filling

keep_cached = sys.modules["coldsnap.keep_cached"]  # the package has the function under this name
WAIT_S = 60  # far beyond what it takes
COLD, WARM = 0.1, 0.95
WEIGHTS = {"w": np.random.default_rng(1).integers(0, 256, 20 * settings.MIB + 5, np.uint8)}
SHARD = "shard-00-00-00"


@pytest.fixture(autouse=True)
def environ(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a launch by a command line of its own."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/vllm", "serve", str(tmp_path)])
    monkeypatch.setattr(early, "_MARK", "_COLDSNAP_LAUNCH_TEST")  # whatever the process around the tests has
    monkeypatch.setenv("COLDSNAP_KEEP_CACHED", "yes")
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state"), "COLDSNAP_KEEP_CACHED": "yes"}


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """An artifact whose blob is not in the page cache."""
    path = tmp_path / "artifact"
    coldsnap.capture(WEIGHTS, path)
    residency = cache.make_cold(blob_of(path))
    if not cache.is_cold(residency):
        pytest.skip(f"the test's folder keeps its files in memory: residency {residency}")
    return path


def blob_of(path: pathlib.Path) -> pathlib.Path:
    return path / SHARD / "weights.safetensors"


def resident(path: pathlib.Path) -> float:
    there, nbytes = _native.residency(str(blob_of(path)))
    return float(there / nbytes)


def hints(environ: dict[str, str]) -> list[pathlib.Path]:
    return sorted(pathlib.Path(environ["COLDSNAP_STATE_DIR"], "launches").glob("*.json"))


class Gate:
    """Holds readers before each piece until it is opened; the pieces are of the smaller kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived, self.opened = threading.Event(), threading.Event()
        self.pieces = 0
        self._read = keep_cached._read
        monkeypatch.setattr(keep_cached, "_read", self.read)
        monkeypatch.setattr(keep_cached, "SOON_PIECE_BYTES", keep_cached.PIECE_BYTES)

    def read(self, *piece: object) -> None:
        self.arrived.set()
        self.opened.wait(WAIT_S)
        self.pieces += 1
        self._read(*piece)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


def test_the_next_launch_reads_what_this_one_restored(path: pathlib.Path, environ: dict[str, str]) -> None:
    assert early.begin(environ) == []
    assert not early.is_reading(environ)
    early.note(str(path), SHARD, environ)
    (reader,) = early.begin(environ := kept(environ))
    assert early.is_reading(environ)
    assert reader.wait(WAIT_S)
    assert reader.reason["code"] == "keep_cached"
    assert resident(path) > WARM


def kept(environ: dict[str, str]) -> dict[str, str]:
    """What a new launch finds of an earlier one's variables: those of its user."""
    return {name: value for name, value in environ.items() if name.startswith("COLDSNAP_")}


def test_only_the_first_process_of_a_launch_reads(path: pathlib.Path, environ: dict[str, str]) -> None:
    early.note(str(path), SHARD, environ)
    (reader,) = early.begin(environ)
    assert early.begin(environ) == []
    assert reader.wait(WAIT_S)


def test_a_launch_within_a_launch_is_its_own(
    path: pathlib.Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    early.begin(environ)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--port=1"])
    early.note(str(path), SHARD, environ)
    (reader,) = early.begin(environ)
    assert reader.wait(WAIT_S)


def test_another_command_line_or_folder_reads_nothing(
    path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early.note(str(path), SHARD, environ)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--load-format=auto"])
    assert early.begin(kept(environ)) == []
    monkeypatch.setattr(sys, "argv", sys.argv[:-1])
    monkeypatch.chdir(tmp_path)
    assert early.begin(kept(environ)) == []
    assert resident(path) < COLD


@pytest.mark.parametrize("argv", [[], [""], ["-c"], ["-m", "x"]])
def test_a_command_line_that_says_nothing_is_none(
    path: pathlib.Path, environ: dict[str, str], argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    early.note(str(path), SHARD, environ)
    assert early.begin(environ) == []
    assert hints(environ) == []


_WORKER = """
import os, sys
from coldsnap.adapters import early
early._MARK = "_COLDSNAP_LAUNCH_TEST"
print(early.is_reading())
early.end()
print(early.is_reading())
"""


def test_a_worker_ends_it_after_the_piece(path: pathlib.Path, environ: dict[str, str], gate: Gate) -> None:
    early.note(str(path), SHARD, environ)
    (reader,) = early.begin(environ)
    assert gate.arrived.wait(WAIT_S)
    worker = subprocess.run(
        [sys.executable, "-c", _WORKER], env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert worker.stdout == "True\nFalse\n"
    gate.opened.set()
    assert reader.wait(WAIT_S)
    assert gate.pieces == 1
    assert reader.reason["code"] == "keep_cached_stopped"


def test_who_fills_ends_it_and_has_no_second_reader(
    path: pathlib.Path, environ: dict[str, str], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    early.note(str(path), SHARD, environ)
    (reader,) = early.begin(environ)
    assert gate.arrived.wait(WAIT_S)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = {"w": np.zeros_like(WEIGHTS["w"])}
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:
        assert filling.ahead is None and filling.since_launch
        filling.fill(found)
    assert (found["w"] == WEIGHTS["w"]).all()
    gate.opened.set()
    assert reader.wait(WAIT_S)
    assert gate.pieces == 1
    with coldsnap.open(path) as artifact, Filling(artifact, "host") as filling:  # a second model of this process
        assert filling.ahead is not None and not filling.since_launch


def test_what_is_named_needs_no_hint(path: pathlib.Path, environ: dict[str, str]) -> None:
    environ |= {"COLDSNAP_ARTIFACT": str(path), "COLDSNAP_STATE_DIR": "/proc/none"}
    (reader,) = early.begin(environ)
    assert reader.wait(WAIT_S)
    assert resident(path) > WARM


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("COLDSNAP_MODE", "off", ""),
        ("COLDSNAP_HYDRATION_BACKEND", "direct", ""),
        ("COLDSNAP_HYDRATION_BACKEND", "nonsense", ""),
        ("COLDSNAP_KEEP_CACHED", "no", "keep_cached_off"),
    ],
)
def test_who_wants_none_gets_none(
    path: pathlib.Path, environ: dict[str, str], variable: str, value: str, code: str
) -> None:
    found = early.begin(environ | {variable: value, "COLDSNAP_ARTIFACT": str(path)})
    assert [reader.reason["code"] for reader in found] == ([code] if code else [])
    assert resident(path) < COLD


def test_all_shards_together_need_room(
    environ: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        path = tmp_path / str(rank)
        coldsnap.capture(WEIGHTS, path)
        # Each is the one shard of its own artifact, where a launch of two ranks has one artifact of two.
        early.note(str(path), SHARD, environ)
        (hint,) = hints(environ)[-1:]
        hint.rename(hint.with_name(hint.name.replace(SHARD, f"{SHARD}-{rank}")))
    environ["COLDSNAP_KEEP_CACHED"] = "auto"
    asked: list[int] = []
    monkeypatch.setattr(early, "why_no_room", lambda nbytes: asked.append(nbytes) or "there is none")
    assert early.begin(environ) == []
    assert asked == [sum(blob_of(tmp_path / str(rank)).stat().st_size for rank in range(2))]


def test_what_is_forgotten_is_not_read(path: pathlib.Path, environ: dict[str, str]) -> None:
    early.note(str(path), SHARD, environ)
    assert len(hints(environ)) == 1
    early.forget(environ)
    assert hints(environ) == []
    assert early.begin(environ) == []


def test_the_same_is_not_written_again(path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    early.note(str(path), SHARD, environ)
    before = hints(environ)[0].stat().st_ino
    early.note(str(path), SHARD, environ)
    assert hints(environ)[0].stat().st_ino == before
    early.note(str(tmp_path / "other"), SHARD, environ)
    assert json.loads(hints(environ)[0].read_text())["path"] == str(tmp_path / "other")


def test_the_oldest_hints_go(path: pathlib.Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "MAX_HINTS", 2)
    for index in range(4):
        monkeypatch.setattr(sys, "argv", ["vllm", str(index)])
        early.note(str(path), SHARD, environ)
        os.utime(hints(environ)[0], ns=(index, index))
    assert len(hints(environ)) == 2
    (reader,) = early.begin(environ)  # the last one's
    assert reader.wait(WAIT_S)


@pytest.mark.parametrize("text", [b"{", b'{"format": 2}', b'{"format": 1, "path": "artifact", "shard": "x"}\n'])
def test_a_damaged_hint_is_nobody_s_failure(path: pathlib.Path, environ: dict[str, str], text: bytes) -> None:
    early.note(str(path), SHARD, environ)
    hints(environ)[0].write_bytes(text)
    assert early.begin(environ) == []


def test_a_hint_that_others_may_write_is_not_read(path: pathlib.Path, environ: dict[str, str]) -> None:
    early.note(str(path), SHARD, environ)
    hints(environ)[0].chmod(0o666)
    assert early.begin(environ) == []


def test_an_artifact_that_is_gone_is_nobody_s_failure(
    path: pathlib.Path, environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    early.note(str(path), SHARD, environ)
    path.rename(tmp_path / "moved")
    assert early.begin(environ) == []
    assert not early.is_reading(environ)


def test_without_sockets_nothing_is_read_and_nobody_fails(
    path: pathlib.Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    early.note(str(path), SHARD, environ)

    def refused(*kind: object) -> None:
        raise PermissionError(1, "not here")

    monkeypatch.setattr(early.socket, "socket", refused)
    assert early.begin(environ) == []
    environ[early._MARK] += "somebody"
    assert not early.is_reading(environ)
    early.end(environ)


def test_a_state_folder_that_can_t_be_written_is_nobody_s_failure(path: pathlib.Path, environ: dict[str, str]) -> None:
    environ["COLDSNAP_STATE_DIR"] = "/proc/none"
    early.note(str(path), SHARD, environ)
    early.forget(environ)
    assert early.begin(environ) == []
