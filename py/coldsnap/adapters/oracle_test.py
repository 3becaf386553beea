"""Oracles: kept by artifact, equal within their room, and never believed when damaged."""

import math
import pathlib
import pwd
from typing import Any

import pytest

from coldsnap import errors
from coldsnap.adapters import oracle
from coldsnap.adapters.oracle import Oracle

ROOT = "a" * 64
SAID = Oracle((1, 2, 3), (4, 5, 6, 7), -12.345678)


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


def test_kept_by_artifact(environ: dict[str, str]) -> None:
    assert oracle.read(ROOT, environ) is None
    oracle.write(ROOT, SAID, environ)
    assert oracle.read(ROOT, environ) == SAID
    assert oracle.read("b" * 64, environ) is None
    oracle.write(ROOT, SAID._replace(qualified=True), environ)
    found = oracle.read(ROOT, environ)
    assert found is not None and found.qualified


def test_where_nobody_has_a_home_folder_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert oracle.read(ROOT, {}) is None
    with pytest.raises(errors.IoError, match="set COLDSNAP_STATE_DIR"):
        oracle.write(ROOT, SAID, {})


def test_a_damaged_record_is_none(environ: dict[str, str]) -> None:
    oracle.write(ROOT, SAID, environ)
    (path,) = pathlib.Path(environ["COLDSNAP_STATE_DIR"]).rglob(f"{ROOT}.json")
    path.write_text(path.read_text().replace("prompt", "promt"))
    assert oracle.read(ROOT, environ) is None


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (SAID, ""),
        (SAID._replace(logprob=SAID.logprob + 3e-3), ""),
        (SAID._replace(logprob=SAID.logprob + 5e-3), "log-probability is -12.340678, and was -12.345678"),
        (SAID._replace(logprob=math.nan), "log-probability is nan"),
        (SAID._replace(tokens=(4, 5, 6, 8)), "the tokens [4, 5, 6, 8], and the engine that captured it [4, 5, 6, 7]"),
    ],
)
def test_what_is_the_same(now: Oracle, words: str) -> None:
    found = oracle.difference(SAID, now)
    assert words in found and bool(words) == bool(found)
    if words:
        with pytest.raises(errors.LayoutError, match="aaaaaaaaaaaa"):
            oracle.require_same(ROOT, SAID, now)
    else:
        oracle.require_same(ROOT, SAID, now)


def test_the_prompt_is_in_the_vocabulary() -> None:
    assert oracle.prompt(512) == oracle.prompt(512)
    assert len(set(oracle.prompt(512))) == oracle.PROMPT_TOKENS
    assert all(0 <= token < 3 for token in oracle.prompt(3))
