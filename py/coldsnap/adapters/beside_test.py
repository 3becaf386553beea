"""Ranks that talk beside their engine: in order, within a time limit, and never waiting inside the store."""

import threading

import pytest

from coldsnap import errors
from coldsnap.adapters.beside import BesideRanks


class Keys:
    """A store whose ``get`` of a key that is not there fails at once, where torch's would wait inside."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


def test_each_hears_all_of_them_in_order() -> None:
    store, heard = Keys(), {}

    def rank(number: int) -> None:
        ranks = BesideRanks(store, "launch", number, 3)
        heard[number] = [ranks.gather(f"{number} first", 30), ranks.gather(f"{number} second", 30)]

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {
        number: [[f"{each} first" for each in range(3)], [f"{each} second" for each in range(3)]] for number in range(3)
    }


def test_one_that_is_silent_ends_the_wait_and_is_named() -> None:
    ranks = BesideRanks(Keys(), "launch", 0, 2)
    with pytest.raises(errors.TimedOutError, match="rank 1 said nothing within 0 s"):
        ranks.gather("here", 0)


def test_orders_are_heard_once_they_are_given() -> None:
    store = Keys()
    first, other = BesideRanks(store, "launch", 0, 2), BesideRanks(store, "launch", 1, 2)
    assert other.ordered(0) is None
    first.order(0, "go")
    assert (other.ordered(0), other.ordered(1)) == ("go", None)
    assert BesideRanks(store, "another", 1, 2).ordered(0) is None
