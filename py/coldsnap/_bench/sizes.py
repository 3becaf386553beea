"""Sizes and rates as people read them; `coldsnap.settings.parse_size` reads what they write."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def format_size(nbytes: int) -> str:
    """Write a size for people: the largest binary unit that keeps it exact, else one decimal of the fitting unit."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= factor:
            return f"{nbytes // factor} {unit}" if nbytes % factor == 0 else f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} bytes"


def format_rate(bytes_per_second: float) -> str:
    """Write a rate in GB/s (10**9), three significant digits: ``2.13``, ``15.4``, ``412``."""
    rate = bytes_per_second / 1e9
    return f"{rate:.2f}" if rate < 10 else f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"
