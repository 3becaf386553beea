"""Signals that end a calibration, wherever the interpreter is when they come."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from coldsnap._bench import workspace


class _EndsInASignal:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_what_a_destructor_swallows_comes_again_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with workspace.signals_raise():
        ending = _EndsInASignal()
        del ending  # whatever the handler raises in there is lost
        with pytest.raises(workspace.Interrupted, match="SIGTERM") as caught:
            workspace.go_on()
    assert caught.value.exit_code == 143
    assert complaints == []
    assert sys.unraisablehook == complaints.append  # as it was
