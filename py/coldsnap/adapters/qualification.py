"""Qualifying an artifact offline: an engine restored from it has to say what the engine says that loads the checkpoint.

    restored    a fresh process starts the engine in mode restore, and asks it the oracle's prompt
    recorded    what the engine said that captured the artifact, where this machine knows it
    normal      else another fresh process starts the engine by its own loader, and its answer is recorded
    compared    the same: the artifact is qualified; not the same: it is put under quarantine

The engine's own output goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import errors, quarantine
from coldsnap.adapters import oracle
from coldsnap.adapters.oracle import Oracle
from coldsnap.artifact import open_artifact, shard_names

ENGINES = ("vllm",)
TIMEOUT_S = 1800  # of one start; compiling and loading a large checkpoint takes minutes
_KEY = "model_loader_extra_config"
_PROGRAM = "coldsnap.adapters.{}.qualify"
_END_S = 30.0  # for an engine that is interrupted to end its processes


class Wanted(NamedTuple):
    """What is to be qualified.

    Attributes:
        engine: One of `ENGINES`.
        arguments: Of the engine, without the load format.
        artifact: The artifact's folder; None: the one that the engine finds in a store.
        store: The store; None: as of the engine's start.
        timeout_s: Most seconds that one start may take.
    """

    engine: str
    arguments: Mapping[str, Any]
    artifact: str | None = None
    store: str | None = None
    timeout_s: int = TIMEOUT_S


class Qualified(NamedTuple):
    """What was found: ``compared_with`` is ``recorded`` or ``normal start``; the answers, which are the same."""

    artifact_root: str
    compared_with: str
    then: Oracle
    now: Oracle


def qualify(wanted: Wanted, environ: Mapping[str, str]) -> Qualified:
    """Start the engine from an artifact, ask it, and compare.

    Raises:
        RequestInvalidError: The arguments have no model, or a load format; or there is no artifact.
        RouteUnavailableError: The engine is not installed beside coldsnap.
        QuarantinedError: The artifact is under quarantine.
        LayoutError: The engine says something else, or its model is not the captured one. It is now under quarantine.
        DataLossError: Bytes of the artifact were lost. It is now under quarantine.
        TimedOutError: A start took too long.
        IoError: The engine did not start, for a reason of its own.
    """
    _check(wanted)
    root = None if wanted.artifact is None else _root_of(wanted.artifact)
    if root is not None:
        _require_no_quarantine(root, environ)
    root, now = _restored(wanted, environ)
    then, compared_with = oracle.read(root, environ), "recorded"
    if then is None or then.prompt != now.prompt:
        _, then = _started(wanted, dict(wanted.arguments), environ)
        compared_with = "normal start"
        oracle.write(root, then, environ)
    try:
        oracle.require_same(root, then, now)
    except errors.LayoutError as failure:
        quarantine.write(root, failure, "qualify", environ)
        raise
    oracle.write(root, then._replace(qualified=True), environ)
    return Qualified(root, compared_with, then, now)


def _check(wanted: Wanted) -> None:
    doing = f"qualify an artifact by {wanted.engine}"
    if not isinstance(wanted.arguments.get("model"), str):
        raise errors.RequestInvalidError(
            f"{doing}: the arguments name no model", remedy="give the engine's own arguments"
        )
    if "load_format" in wanted.arguments:
        raise errors.RequestInvalidError(
            f"{doing}: the arguments have a load_format, and it is started with two of them", remedy="leave it out"
        )
    if importlib.util.find_spec(wanted.engine) is None:
        raise errors.RouteUnavailableError(
            f"{doing}: it is not installed beside coldsnap in {sys.executable}", remedy="run the engine's own Python"
        )


def _root_of(path: str) -> str:
    with open_artifact(path, shard=shard_names(path)[0]) as artifact:
        return artifact.artifact_root


def _require_no_quarantine(root: str, environ: Mapping[str, str]) -> None:
    record = quarantine.find(root, environ)
    if record is not None:
        raise errors.QuarantinedError(
            f"qualify artifact {root}: it is under quarantine ({record.code}: {record.message})",
            remedy=f"capture it again, or take the record away: coldsnap store unquarantine {root}",
        )


def _restored(wanted: Wanted, environ: Mapping[str, str]) -> tuple[str, Oracle]:
    """The root that the engine restored from, and what it says."""
    theirs = wanted.arguments.get(_KEY) or {}
    ours = {name: value for name, value in theirs.get("coldsnap", {}).items() if name not in ("control", "when")}
    ours |= {
        "mode": "restore",
        **{name: getattr(wanted, name) for name in ("artifact", "store") if getattr(wanted, name)},
    }
    arguments = {**wanted.arguments, "load_format": "coldsnap", _KEY: {**theirs, "coldsnap": ours}}
    other = {"COLDSNAP_ARTIFACT"} if wanted.store is not None else set()
    receipts, said = _started(wanted, arguments, {name: value for name, value in environ.items() if name not in other})
    roots = [receipt["artifact_root"] for receipt in receipts if receipt["operation"] == "hydrate" and receipt["ok"]]
    if not roots:
        raise errors.InternalError("qualify an artifact: the engine answered, and left no receipt of a restore")
    return roots[0], said


def _started(
    wanted: Wanted, arguments: dict[str, Any], environ: Mapping[str, str]
) -> tuple[list[dict[str, Any]], Oracle]:
    """Start the engine in a process of its own; the receipts that it left, and what it said."""
    doing = f"start {wanted.engine} with load format {arguments.get('load_format', 'auto')}"
    with tempfile.TemporaryDirectory(prefix="coldsnap-qualify-") as folder:
        order, answer, receipts = (Path(folder, name) for name in ("order.json", "answer.json", "receipts"))
        order.write_text(json.dumps({"arguments": arguments, "tokens": oracle.TOKENS}))
        variables = {name: value for name, value in environ.items() if name != "COLDSNAP_CONTROL"}  # of one that serves
        command = [sys.executable, "-m", _PROGRAM.format(wanted.engine), str(order), str(answer)]
        status = _run(command, variables | {"COLDSNAP_RECEIPT_DIR": str(receipts)}, doing, wanted.timeout_s)
        left = [json.loads(path.read_text()) for path in sorted(receipts.glob("*.json"))]
        said = json.loads(answer.read_text()) if answer.exists() else {}
    if "tokens" not in said:
        raise _failure(doing, said.get("error"), left, status)
    return left, Oracle(tuple(said["prompt"]), tuple(said["tokens"]), float(said["logprob"]))


def _run(command: list[str], environ: Mapping[str, str], doing: str, timeout_s: int) -> int:
    """The exit status of a program whose children end with it, and whose output goes to standard error."""
    process = subprocess.Popen(
        command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=sys.__stderr__, start_new_session=True
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired as cause:
        raise errors.TimedOutError(
            f"{doing}: it said nothing within {timeout_s} s", remedy="look at its log above, or give timeout_s"
        ) from cause
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(doing: str, error: Any, receipts: list[dict[str, Any]], status: int) -> errors.Error:
    """Why an engine did not start: what coldsnap in it raised, else what its receipts say, else its own affair."""
    known = {kind.code for kind in errors.ERROR_CLASSES} - {errors.InternalError.code}
    for found in (error, *(receipt["error"] for receipt in reversed(receipts))):
        if found is not None and found["code"] in known:
            return errors.from_native(found["code"], f"{doing}: {found['message']}", found["stage"], found["remedy"])
    why = f"it ended with status {status}" if error is None else error["message"]
    return errors.IoError(f"{doing}: {why}", remedy="look at its log, above on standard error")
