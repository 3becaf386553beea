"""That a model's finished weights could not be captured, so that the next start captures what they are made from.

It shows only at the end of a load, when what was before post-processing is gone. One small file for each identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from coldsnap import errors, records, state

FORMAT = 1
_PLACE = state.Place("attempts")
_MAX_BYTES = 64 << 10
_SCHEMA = records.record(
    format=records.whole(FORMAT, FORMAT), why=records.text(r"[^\x00]{0,4000}"), version=records.text()
)


def note(identity_digest: str, why: str, version: str, environ: Mapping[str, str]) -> None:
    """Remember that the finished weights of an identity could not be captured.

    Args:
        identity_digest: Of the identity, in hex.
        why: What stood against it.
        version: Of the coldsnap that tried: another one may see more.
        environ: Environment variables.
    Raises:
        PolicyRefusedError: The state folder can't be trusted.
        IoError, NoSpaceError: It can't be written.
    """
    data = json.dumps({"format": FORMAT, "why": why.replace("\0", "")[:4000], "version": version}).encode() + b"\n"
    with state.opened(_PLACE, environ, make=True) as folder:
        assert folder is not None  # it was to be made
        state.write_file(folder, f"{identity_digest}.json", data)


def failed(identity_digest: str, version: str, environ: Mapping[str, str]) -> bool:
    """Whether this version could not capture the finished weights before; what can't be read is not remembered."""
    try:
        with state.opened(_PLACE, environ) as folder:
            data = None if folder is None else state.read_file(folder, f"{identity_digest}.json", _MAX_BYTES)
        return data is not None and records.load(data, _SCHEMA)["version"] == version
    except (errors.Error, ValueError):
        return False
