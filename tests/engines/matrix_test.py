"""Captured and restored starts of every kind of model, in one process, in several, and with two ranks."""

from __future__ import annotations

import pathlib

import pytest

from tests.engines.cases import MATRIX, Case, check


@pytest.mark.parametrize("case", MATRIX.values(), ids=MATRIX)
def test_restores_what_was_captured(case: Case, tmp_path: pathlib.Path) -> None:
    check(case, tmp_path)
