"""The seed of what a test draws at random: the test's own, so that every run is the same, or another one from outside."""

import os

VARIABLE = "COLDSNAP_TEST_SEED"


def chosen(usual: int) -> int:
    """The number in COLDSNAP_TEST_SEED, which //tests:soak sets; without it, ``usual``.

    Raises:
        ValueError: It is no number.
    """
    return int(os.environ.get(VARIABLE, usual))
