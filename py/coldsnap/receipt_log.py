"""The last receipts of requests, in the state folder: what a manager asks for after it lost an answer."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from coldsnap import errors, receipts, state

KEPT = 100
_MAX_RECEIPT_BYTES = 4 << 20
_KEYS = {field.name for field in dataclasses.fields(receipts.Receipt)}
_NAME = re.compile(r"\d{20}-\d+\.json", re.ASCII)


def keep(line: str, environ: Mapping[str, str]) -> None:
    """Write one receipt, and remove all but the last `KEPT`.

    Args:
        line: The receipt as it is printed.
        environ: Environment variables.
    Raises:
        PolicyRefusedError: The folder can't be trusted.
        IoError, NoSpaceError: A system call failed.
    """
    with state.opened(state.RECEIPTS, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        # Wall-clock time, so that names order receipts across processes and reboots.
        state.write_file(folder, f"{time.time_ns():020}-{os.getpid()}.json", line.encode() + b"\n")
        for name in _names(folder)[KEPT:]:
            state.remove_file(folder, name)


def last(count: int, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The newest receipts, newest first; what is damaged or was removed meanwhile is left out.

    Raises:
        PolicyRefusedError: The folder, or a receipt, can't be trusted.
        IoError: A receipt can't be read.
    """
    found = []
    with state.opened(state.RECEIPTS, environ) as folder:
        for name in [] if folder is None else _names(folder)[:count]:
            data = state.read_file(folder, name, _MAX_RECEIPT_BYTES)
            with contextlib.suppress(ValueError):
                receipt = json.loads(data or b"")
                if isinstance(receipt, dict) and receipt.keys() >= _KEYS:
                    found.append(receipt)
    return found


def _names(folder: int) -> list[str]:
    """Newest first."""
    try:
        return sorted(filter(_NAME.fullmatch, os.listdir(folder)), reverse=True)
    except OSError as cause:
        raise errors.from_errno(cause, "list the receipts in the state folder") from cause
