"""What a load leaves for later: its receipt, and after a failure of the data a quarantine, so that it fails only once."""

from __future__ import annotations

import os

from vllm.logger import init_logger

from coldsnap import errors, quarantine, receipt_log
from coldsnap.receipts import Receipt

_log = init_logger("vllm.coldsnap")
# Another attempt would fail alike. Memory, a device or a time limit may be better next time.
_OF_DATA = ("data_loss", "format_invalid", "layout_mismatch", "io", "internal")


def keep(receipt: Receipt | None) -> None:
    """Keep a receipt where that can be; a start does not depend on it."""
    if receipt is None:
        return
    try:
        receipt_log.keep(receipt.to_json(), os.environ)
    except errors.Error as cause:
        _log.debug("coldsnap: the receipt was not kept: %s", cause)


def remember(root: str, failure: errors.Error, then: str, otherwise: str) -> None:
    """After a failure of the data: put the artifact under quarantine, and have the failure say so.

    Args:
        root: Of the artifact.
        failure: What went wrong; its remedy gets longer.
        then: What follows from the quarantine.
        otherwise: The remedy where none can be written.
    """
    if failure.code not in _OF_DATA:
        return
    try:
        quarantine.write(root, failure, "restore", os.environ)
    except errors.Error as cause:
        failure.remedy = f"{otherwise}, since the artifact could not be put under quarantine: {cause}"
        return
    failure.remedy = f"{failure.remedy}; the artifact is now under quarantine, and {then}".removeprefix("; ")
