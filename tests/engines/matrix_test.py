"""Captured and restored starts of every kind of model, in one process and in several."""

from __future__ import annotations

import pathlib

import pytest

from tests.engines.cases import Case, check

_CASES = {
    "dense": Case("dense", "meta"),
    "dense, processes": Case("dense", "meta", processes=True),
    "dense, as a CPU has it, processes": Case("dense", "loaded", plain=False, processes=True),
    "tied": Case("tied", "meta"),
    "retie": Case("retie", "meta"),
    "untie": Case("untie", "meta"),
    "untie, as a CPU has it": Case("untie", "loaded", plain=False),
    "moe": Case("moe", "meta"),
    "moe, processes": Case("moe", "meta", processes=True),
    "gptq, processes": Case("gptq", "shape", processes=True),
    "gptq, two ranks": Case("gptq", "shape", ranks=2),
    "awq": Case("awq", "shape"),
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_restores_what_was_captured(case: Case, tmp_path: pathlib.Path) -> None:
    check(case, tmp_path)
