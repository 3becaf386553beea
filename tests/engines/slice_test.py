"""The cases of captured and restored starts that every change has to pass; `matrix_test` has the others.

Chosen to meet each strategy, quantised weights, experts, and two ranks in the time that there is.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.engines.cases import Case, check

_CASES = {
    "dense, as a CPU has it": Case("dense", "loaded", plain=False),
    "gptq": Case("gptq", "shape"),
    "moe, two ranks": Case("moe", "meta", ranks=2),
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_restores_what_was_captured(case: Case, tmp_path: pathlib.Path) -> None:
    check(case, tmp_path)
