"""The cases of captured and restored starts that every change has to pass."""

from __future__ import annotations

import pathlib

import pytest

from tests.engines.cases import SLICE, Case, check


@pytest.mark.parametrize("case", SLICE.values(), ids=SLICE)
def test_restores_what_was_captured(case: Case, tmp_path: pathlib.Path) -> None:
    check(case, tmp_path)
