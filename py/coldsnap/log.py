"""One line for each restore, capture and verification, by the standard `logging` module, to the logger ``coldsnap``.

INFO for one that succeeded, WARNING for one that failed. The line is for people; programs take ``record.coldsnap``, the
receipt as a dictionary. The library installs no handler but one that does nothing: who wants to see the lines adds one.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from coldsnap.receipts import Receipt

LEVELS = ("debug", "info", "warning", "error")
_LOGGER = logging.getLogger("coldsnap")
_LOGGER.addHandler(logging.NullHandler())
_DONE = {"hydrate": "restored", "capture": "captured", "verify": "verified"}


def done(receipt: Receipt) -> Receipt:
    """Write the line of an operation that has ended, and give its receipt back."""
    level = logging.INFO if receipt.ok else logging.WARNING
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, "%s", _line(receipt), extra={"coldsnap": receipt.as_dict()})
    return receipt


@contextlib.contextmanager
def to_stderr(level: str | None) -> Iterator[None]:
    """For commands: have lines of that level and above on standard error, each once; None: none of them."""
    if level is None:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s coldsnap: %(message)s"))
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False  # a library of the command may have a handler for everything
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]


def _line(receipt: Receipt) -> str:
    artifact = f", artifact {receipt.artifact_root}" if receipt.artifact_root else ""
    codes = ", ".join(dict.fromkeys(reason["code"] for reason in receipt.reasons)) or "no reasons"
    if receipt.error is not None:
        what = f"{receipt.operation} failed after {receipt.wall_s:.3f} s: {receipt.error['code']}"
        return f"{what}: {receipt.error['message']} ({codes}){artifact}"
    rate = f"{(receipt.bytes_per_second or 0.0) / 1e9:.2f} GB/s"
    how = " and ".join(f"{route['route']} {route['bytes']} bytes" for route in receipt.routes) or "nothing to move"
    mode, place = receipt.verify["mode"], receipt.verify["place"]
    digests = f"{mode} on {place}" if place and mode != "none" else f"digests {mode}"
    moved = f"{_DONE[receipt.operation]} {receipt.payload_bytes} bytes in {receipt.wall_s:.3f} s, {rate}"
    return f"{moved}; {how} ({codes}); {digests}{artifact}"
