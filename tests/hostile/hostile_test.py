"""Every attack of README.md: refused with its reason, by opening and by verifying, in bounded time and memory."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import coldsnap
from coldsnap import errors
from tests.hostile import (  # noqa: F401 - those of attacks register themselves
    attacks_files,
    attacks_manifest,
    attacks_payload,
    attacks_tensors,
    attacks_text,
    attempt,
    forge,
)

HERE = pathlib.Path(__file__).parent
OPERATIONS = {"open": "open+verify", "verify": "verify", "admit": "admit"}
MIB = 1 << 20
# A small artifact takes a few MiB; what grows with the attacker's text may take some times the text, and no more.
FIXED_BYTES = 48 * MIB
TIMES_TEXT = 16
# Stops what has no bound at all before the machine suffers; what a case really took is measured.
ADDRESS_SPACE_BYTES = 2048 * MIB


class Row(NamedTuple):
    """A row of the table in README.md."""

    attack: str
    what: str
    by: str
    code: str
    says: str


def rows() -> list[Row]:
    found = []
    for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            assert len(cells) == 5, line
            found.append(Row(*(cell.strip("`") if at != 1 else cell for at, cell in enumerate(cells))))
    return found


ROWS = rows()


def matches(row: Row, message: str) -> bool:
    """Whether the message has the row's sentence; … stands for anything."""
    pieces = (re.escape(piece) for piece in row.says.split("…"))
    return re.search(".*?".join(pieces), message, re.DOTALL) is not None


def size_of_texts(folder: pathlib.Path) -> int:
    """What a reader has to read before it can refuse: all but the blob; holes don't count."""
    files = folder.rglob("*") if folder.is_dir() else ()
    names = {"artifact.json", "manifest.json", "leaves.bin"}
    return sum(path.lstat().st_blocks * 512 for path in files if path.name in names)


class Attempts:
    """The process that makes attempts (attempt.py)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, folder: pathlib.Path, by: str, may_add: int = ADDRESS_SPACE_BYTES) -> dict[str, Any]:
        request = {"folder": str(folder), "operations": OPERATIONS[by].split("+"), "may_add": may_add}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        assert found["ended"] == 0, f"the attempts ended with {found['ended']}; minus a number is a signal"
        return found


@pytest.fixture(scope="module")
def attempted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempts]:
    environ = {**os.environ, "COLDSNAP_STATE_DIR": str(tmp_path_factory.mktemp("state") / "state")}
    program = [sys.executable, str(HERE / "attempt.py")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        yield Attempts(process)
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("good") / "artifact"
    forge.write_good(folder)
    return folder


def test_rows_and_attacks_match_one_to_one() -> None:
    assert sorted(row.attack for row in ROWS) == sorted(forge.ATTACKS)
    codes = {kind.code for kind in errors.ERROR_CLASSES}
    for row in ROWS:
        assert row.by in OPERATIONS, row
        assert row.code in codes, row
        assert len(row.what) > 10 and len(row.says) > 5, row


def test_the_good_artifact_passes(attempted: Attempts, good: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An artifact that no attack touched, written again by the forger, is as good as the writer's."""
    forgery = forge.Forgery(good, tmp_path / "artifact")
    before = [forgery.path(name).read_bytes() for name in ("artifact.json", "manifest.json")]
    forgery.seal()
    assert [forgery.path(name).read_bytes() for name in ("artifact.json", "manifest.json")] == before
    forgery.path("manifest.json").chmod(0o444)
    forgery.path("artifact.json").chmod(0o444)
    for by in OPERATIONS:
        found = attempted(forgery.folder, by)
        assert [end["code"] for end in found["ends"]] == [None] * len(found["ends"]), found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.attack)
def test_is_refused(row: Row, attempted: Attempts, good: pathlib.Path, tmp_path: pathlib.Path) -> None:
    forgery = forge.Forgery(good, tmp_path / "artifact")
    try:
        forge.ATTACKS[row.attack](forgery)
    except PermissionError as refusal:
        assert row.attack.startswith("device-"), refusal
        pytest.skip(f"make a device node: {refusal}; remedy: run as root")
    found = attempted(forgery.folder, row.by)
    for end in found["ends"]:
        assert end["code"] == row.code, end
        assert matches(row, end["message"]), end
        assert len(end["message"]) < 2000, "a message must not repeat what it was fed"
    bound = FIXED_BYTES + TIMES_TEXT * size_of_texts(forgery.folder)
    assert found["grown_bytes"] <= bound, f"{found['grown_bytes'] / MIB:.0f} MiB, allowed are {bound / MIB:.0f}"


def test_opening_reads_nothing_of_the_weights(good: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """So what is refused by `verify` alone is opened, and a restore has to compare every digest: it does."""
    for row in ROWS:
        if row.by == "verify":
            forgery = forge.Forgery(good, tmp_path / row.attack)
            forge.ATTACKS[row.attack](forgery)
            assert attempt.attempt("open", str(forgery.folder))["code"] is None, row.attack


@pytest.mark.parametrize("name", ["wide-artifact-json", "wide-tensors"])
def test_memory_that_is_not_there_is_an_error_like_any(
    name: str, attempted: Attempts, good: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    forgery = forge.Forgery(good, tmp_path / "artifact")
    forge.ATTACKS[name](forgery)
    found = attempted(forgery.folder, "open", 24 * MIB)
    for end in found["ends"]:
        assert end["code"] == "out_of_memory", end
        assert "there is not enough memory for what its artifact.json and manifests describe" in end["message"]


def test_a_restore_finds_other_weights_too(good: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """All but padding, which no tensor has: there every byte that is restored is right."""
    data = {"a": 70_000, "m": 65_536, "b": 100}
    for row in ROWS:
        if row.by != "verify":
            continue
        forgery = forge.Forgery(good, tmp_path / row.attack)
        forge.ATTACKS[row.attack](forgery)
        targets = {name: np.zeros(nbytes, np.uint8) for name, nbytes in data.items()}
        tensors = {"a": targets["a"], "m": targets["m"], "b": targets["b"].view(np.float32)}
        if row.attack.startswith("nonzero-padding"):
            assert coldsnap.hydrate(forgery.folder, tensors, partial=True).ok
            assert (targets["a"] == np.arange(70_000) % 251).all()
            continue
        with pytest.raises(errors.DataLossError):
            coldsnap.hydrate(forgery.folder, tensors, partial=True)
        assert all((target == 0xFF).all() for target in targets.values()), row.attack
