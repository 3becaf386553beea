"""Progress and cancelling of long operations."""

import threading

import pytest

from coldsnap import errors, ticker
from coldsnap.ticker import Ticker


def test_progress_is_called_for_the_first_and_the_last_byte_and_rarely_between() -> None:
    calls: list[tuple[int, int]] = []
    tick = Ticker(lambda done, total: calls.append((done, total)), None)
    assert not any(tick(done, 100_000) for done in range(100_001))
    assert (calls[0], calls[-1]) == ((0, 100_000), (100_000, 100_000))
    assert len(calls) < 1000
    tick(100_000, 100_000)
    assert calls.count((100_000, 100_000)) == 1


def test_progress_never_goes_back() -> None:
    calls: list[int] = []
    tick = Ticker(lambda done, total: calls.append(done), None)
    for done in (10, 3, 10, 7):
        tick(done, 10)
    assert calls == [10]


def test_nothing_to_do_is_progress_too() -> None:
    calls: list[tuple[int, int]] = []
    Ticker(lambda done, total: calls.append((done, total)), None)(0, 0)
    assert calls == [(0, 0)]


def test_a_set_event_stops_before_progress_is_told() -> None:
    cancel = threading.Event()
    tick = Ticker(lambda done, total: pytest.fail("progress after the cancel"), cancel)
    assert not tick.cancelled
    cancel.set()
    assert tick(1, 2)
    assert tick.cancelled


def test_progress_may_ask_to_stop() -> None:
    cancel = threading.Event()
    assert Ticker(lambda done, total: cancel.set(), cancel)(1, 2)


def test_wrong_arguments_are_refused() -> None:
    ticker.check_arguments("verify", None, None)
    ticker.check_arguments("verify", print, threading.Event())
    with pytest.raises(errors.RequestInvalidError, match="verify: progress is a int; give a function"):
        ticker.check_arguments("verify", 5, None)
    with pytest.raises(errors.RequestInvalidError, match=r"verify: cancel is a int; give a threading\.Event"):
        ticker.check_arguments("verify", None, 5)
