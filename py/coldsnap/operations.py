"""What each operation of a request does: the library's own functions, called with what the request gave."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import control, errors, receipt_log, receipts, state, store_place, tensor_files
from coldsnap.artifact import open_artifact
from coldsnap.capture import capture
from coldsnap.destinations import numpy_destinations, torch_destinations
from coldsnap.hydrate import hydrate
from coldsnap.new_file import saying
from coldsnap.receipts import Receipt
from coldsnap.request_schema import Request
from coldsnap.store import Store
from coldsnap.ticker import Ticker
from coldsnap.verify import verify

Progress = Callable[[int, int], object]
_SHOWN_RECEIPTS = 5


class Outcome(NamedTuple):
    """What an operation has to say: its receipt, and what it found out beside that; None where it has no more."""

    receipt: Receipt
    report: dict[str, Any] | None


def run(request: Request, progress: Progress) -> Outcome:
    """Do what a request asks.

    Args:
        request: From `coldsnap.request_schema.parse`.
        progress: Called with (bytes done, bytes in total).
    Raises:
        Whatever the operation raises; what is ours has ``receipt``.
    """
    return _RUN[request.operation](request.values, progress)


def _capabilities(values: dict[str, Any], progress: Progress) -> Outcome:
    def report(account: receipts.Account) -> dict[str, Any]:
        from coldsnap import capabilities

        return capabilities.report(Path(values["path"]) if "path" in values else None)

    return _reporting("capabilities", report)


def _inspect(values: dict[str, Any], progress: Progress) -> Outcome:
    def report(account: receipts.Account) -> dict[str, Any]:
        from coldsnap import inspection

        found = inspection.report(values["path"], values.get("shard"))
        account.artifact_root, account.payload_bytes = found["artifact_root"], found["payload_bytes"]
        return found

    return _reporting("inspect", report)


def _verify(values: dict[str, Any], progress: Progress) -> Outcome:
    return Outcome(verify(values["path"], admit=values.get("admit", False), progress=progress), None)


def _calibrate(values: dict[str, Any], progress: Progress) -> Outcome:
    def report(account: receipts.Account) -> dict[str, Any]:
        from coldsnap import calibrate  # with rich and absl, which no other operation should wait for

        # A program gets the document itself; a page is for people.
        flags = ["--noreport", *(_flag(name, value) for name, value in values.items())]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            wanted = calibrate.parse_flags(["calibrate", *flags])
            assert wanted is not None  # no request has --help
            document = calibrate.run(wanted)
        account.payload_bytes = document["payload_bytes"]
        return {"results": document, "printed": printed.getvalue().splitlines()}

    return _reporting("calibrate", report)


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={','.join(value) if isinstance(value, list) else value}"


def _capture(values: dict[str, Any], progress: Progress) -> Outcome:
    if "control" in values["source"]:
        return _capture_running(values, progress)
    begin = time.monotonic()
    arguments = {name: value for name, value in values.items() if name != "source"}
    try:
        if "path" not in values:
            store = store_place.chosen(values.get("store"), os.environ)
            store_place.require_lasting(store)
            arguments["store"] = store.value
        elif os.path.lexists(values["path"]):  # before gigabytes are read in vain
            raise errors.ExistsError(
                f"capture to {values['path']}: it is there already", stage="publish", remedy="name a new path"
            )
        reading = _Reading(progress, passes=3 if values.get("preverified") else 2)
        tensors = _source(values["source"], reading)
        if "path" not in values:
            store_place.require_free(store, sum(tensor.nbytes for tensor in tensors.values()))
    except BaseException as failure:
        _account_for(failure, receipts.Account("capture", wall_s=time.monotonic() - begin))
        raise
    receipt = capture(tensors, **arguments, progress=reading.behind)
    place = values.get("path") or Store(arguments["store"]).folder_of(values["identity"]) / str(receipt.artifact_root)
    return Outcome(receipt, {"path": str(place), "tensors": len(tensors)})


def _capture_running(values: dict[str, Any], progress: Progress) -> Outcome:
    """Have a running engine capture itself; what it is and where it goes, it knows."""
    begin = time.monotonic()
    store = values.get("store")
    request = {"operation": "capture", "store": None if store is None else os.path.abspath(store)}
    try:
        report, receipt = control.ask(values["source"]["control"], request, progress)
        if receipt is None:
            raise errors.InternalError("capture the running engine: it did so, and sent no receipt")
    except BaseException as failure:
        _account_for(failure, receipts.Account("capture", wall_s=time.monotonic() - begin))
        raise
    return Outcome(receipt, report)


class _Reading:
    """Progress of reading files, and of the capture behind it, as one: the bytes read count like each pass over them."""

    def __init__(self, progress: Progress, passes: int) -> None:
        self._progress, self._ticker = progress, Ticker(progress, None)
        self._passes, self._nbytes = passes, 0

    def __call__(self, done: int, total: int) -> None:
        self._nbytes = total
        self._ticker(done, total * (1 + self._passes))  # a header more than the payload, so an estimate

    def behind(self, done: int, total: int) -> None:
        self._progress(self._nbytes + done, self._nbytes + total)


def _source(source: dict[str, Any], progress: Progress) -> dict[str, Any]:
    if "safetensors" in source:
        return tensor_files.read_safetensors(source["safetensors"], progress)
    return tensor_files.read_numpy(source["numpy"], progress)


def _hydrate(values: dict[str, Any], progress: Progress) -> Outcome:
    begin = time.monotonic()
    device, output = values.get("device", "host"), values.get("output")
    settings = {name: value for name, value in values.items() if name not in ("path", "shard", "device", "output")}
    receipt: Receipt | None = None
    try:
        with open_artifact(values["path"], shard=values.get("shard")) as artifact:
            if output is not None:
                _require_output(output)
                tensor_files.require_writable(artifact)
            tensors = numpy_destinations(artifact) if device == "host" else torch_destinations(artifact, device)
            receipt = hydrate(artifact, tensors, **settings, progress=progress)
            report: dict[str, Any] = {"device": device, "tensors": len(tensors), "output_bytes": None}
            if output is not None:
                arrays = tensors if device == "host" else _on_host(tensors)
                report["output_bytes"] = tensor_files.write_safetensors(output, artifact, arrays)
    except BaseException as failure:
        if receipt is not None:  # restored, and not written
            failure.receipt = dataclasses.replace(receipt, ok=False, error=receipts.error_entry(failure))  # type: ignore[attr-defined]
        _account_for(failure, receipts.Account("hydrate", wall_s=time.monotonic() - begin))
        raise
    return Outcome(receipt, report)


def _require_output(output: str) -> None:
    if os.path.lexists(output):
        raise errors.ExistsError(f"write tensors to {output}: it is there already", remedy="name a new file")
    if not os.path.isdir(os.path.dirname(output) or "."):
        raise errors.RequestInvalidError(
            f"write tensors to {output}: its folder is not there", remedy="name a file in a folder that is there"
        )


def _on_host(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes of torch tensors as numpy arrays of bytes."""
    import torch

    return {
        name: each.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy() for name, each in tensors.items()
    }


def _qualify(values: dict[str, Any], progress: Progress) -> Outcome:
    def report(account: receipts.Account) -> dict[str, Any]:
        from coldsnap.adapters import qualification

        found = qualification.qualify(qualification.Wanted(**values), os.environ)
        account.artifact_root = found.artifact_root
        return {
            "qualified": True,
            "engine": values["engine"],
            "compared_with": found.compared_with,
            "prompt": list(found.now.prompt),
            "tokens": list(found.now.tokens),
            "logprob": found.now.logprob,
            "logprob_then": found.then.logprob,
        }

    return _reporting("qualify", report)


def _status(values: dict[str, Any], progress: Progress) -> Outcome:
    def report(account: receipts.Account) -> dict[str, Any]:
        from coldsnap import quarantine

        if "control" in values:
            found, _ = control.ask(values["control"], {"operation": "status"}, progress)
            return found or {}

        return {
            "state_dir": str(state.state_dir(os.environ)),
            "profile": state.profile_path(os.environ).is_file(),
            "trust_markers": _count_of(state.TRUST),
            "quarantine": [record._asdict() for record in quarantine.every(os.environ)],
            "receipts_kept": _count_of(state.RECEIPTS),
            "receipts": receipt_log.last(values.get("receipts", _SHOWN_RECEIPTS), os.environ),
        }

    return _reporting("status", report)


def _count_of(place: state.Place) -> int:
    with state.opened(place, os.environ) as folder, saying(f"list the folder {place.name} of the state", stage=""):
        return 0 if folder is None else sum(name.endswith(".json") for name in os.listdir(folder))


def _reporting(operation: str, work: Callable[[receipts.Account], dict[str, Any]]) -> Outcome:
    """Run an operation that has no receipt of its own."""
    begin = time.monotonic()
    account = receipts.Account(operation)
    try:
        report = work(account)
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        _account_for(failure, account)
        raise
    account.wall_s = time.monotonic() - begin
    moved = dataclasses.replace(account.receipt(), bytes_per_second=None, limiting_stage=None)
    return Outcome(moved, report)


def _account_for(failure: BaseException, account: receipts.Account) -> None:
    """Give a failure a receipt, where it has none yet."""
    if getattr(failure, "receipt", None) is None:
        with contextlib.suppress(AttributeError, TypeError):  # somebody else's exception may have no room for it
            failure.receipt = account.receipt(failure)  # type: ignore[attr-defined]


_RUN: dict[str, Callable[[dict[str, Any], Progress], Outcome]] = {
    "capabilities": _capabilities,
    "inspect": _inspect,
    "verify": _verify,
    "calibrate": _calibrate,
    "capture": _capture,
    "hydrate": _hydrate,
    "qualify": _qualify,
    "status": _status,
}
