"""Which checkpoint it is, by its content: a hub's commit where there is one, else the SHA-256 of every file of weights.

A digest is remembered on this machine under the file's size, mtime, ctime and inode, so that only what is new is read:
new weights under old names are other weights, and a fresh download of the same bytes is the same checkpoint.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import errors, records, state
from coldsnap.new_file import saying

FORMAT = 1
MAX_ENTRIES = 10_000
_PLACE = state.Place("checkpoints")
_NAME = "digests.json"
_MAX_BYTES = 8 << 20
_PIECE_BYTES = 4 << 20
_MOST_READERS = 8
# A file that changes twice within one tick of its file system's clock keeps its times; some tick every two seconds.
_SETTLED_S = 3.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
# What loaders read weights from, and what says how they are read.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_DESCRIBING = re.compile(r"(config|params|quantize_config|hf_quant_config|quant_config|.*\.index)\.json")

_COUNT = records.whole(0, (1 << 53) - 1)
_ENTRY = records.record(
    size=_COUNT,
    mtime_ns=records.decimal,
    ctime_ns=records.decimal,
    inode=records.decimal,
    sha256=records.text(records.HEX64),
)
_SCHEMA = records.record(format=records.whole(FORMAT, FORMAT), entries=records.array(_ENTRY))


class _Facts(NamedTuple):
    """By which a file is known again."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def of_commit(repository: str, commit: str) -> dict[str, Any]:
    """The identity of a checkpoint that a hub keeps under a commit."""
    return {"repository": repository, "commit": commit}


def of_folder(folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """The identity of the checkpoint in a folder: every file of weights, and those that say how they are read, by name.

    Args:
        folder: As the engine's loader reads it. A snapshot folder of the Hugging Face cache is known by its commit.
        environ: Environment variables.
    Raises:
        RequestInvalidError: There are no weights in it.
        IoError: A file can't be read, or changes meanwhile.
    """
    repository = _hub_repository(folder)
    if repository is not None:
        return of_commit(repository, folder.name)
    with saying(f"list the checkpoint {folder}", stage="open"):
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    weights = [name for name in names if name.endswith(_WEIGHTS)]
    if not weights:
        raise errors.RequestInvalidError(
            f"identify the checkpoint {folder}: there is no file of weights in it",
            stage="open",
            remedy="name the artifact, and set the extra configuration's identity to manifest",
        )
    names = [name for name in names if name in weights or _DESCRIBING.fullmatch(name)]
    found = digests([folder / name for name in names], environ)
    return {"sha256": dict(zip(names, found, strict=True))}


def digests(paths: Sequence[Path], environ: Mapping[str, str]) -> list[str]:
    """The SHA-256 of each file, in lower-case hex; those that are not remembered are read, several at a time.

    That nothing can be remembered, in a container that has nowhere to write, is no failure.

    Raises:
        IoError: A file can't be read, or changes meanwhile.
    """
    facts = [_facts_of(path) for path in paths]
    known = _read(environ)
    missing = [index for index, each in enumerate(facts) if each not in known]
    if not missing:
        return [known[each] for each in facts]
    with contextlib.ExitStack() as stack:
        folder = _opened(environ, stack)
        if folder is not None:
            stack.enter_context(state.locked(folder))  # the ranks of a machine read each file once, not each of them
            known = _read(environ)
            missing = [index for index, each in enumerate(facts) if each not in known]
        begin_ns = time.time_ns()
        readers = max(1, min(_MOST_READERS, len(os.sched_getaffinity(0)), len(missing)))
        with concurrent.futures.ThreadPoolExecutor(readers, "coldsnap-checkpoint") as pool:
            new = dict(zip(missing, pool.map(lambda index: _digest(paths[index], facts[index]), missing), strict=True))
        if folder is not None and new:
            settled = {facts[index]: digest for index, digest in new.items() if _settled(facts[index], begin_ns)}
            with contextlib.suppress(errors.Error):  # they are read again next time
                _write(folder, known | settled)
    return [new[index] if index in new else known[each] for index, each in enumerate(facts)]


def _hub_repository(folder: Path) -> str | None:
    """Of ``models--<owner>--<name>/snapshots/<commit>``, as the Hugging Face cache has it."""
    around = folder.parent
    named = around.parent.name
    if not _COMMIT.fullmatch(folder.name) or around.name != "snapshots" or not named.startswith("models--"):
        return None
    return named.removeprefix("models--").replace("--", "/")


def _facts_of(path: Path) -> _Facts:
    with saying(f"look at {path}", stage="open"):
        info = os.stat(path)
    return _Facts(info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


def _digest(path: Path, facts: _Facts) -> str:
    found, buffer = hashlib.sha256(), bytearray(_PIECE_BYTES)
    view = memoryview(buffer)
    with saying(f"read {path}", stage="open"), open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(view[:count])
    if _facts_of(path) != facts:
        raise errors.IoError(
            f"read {path}: it changed meanwhile", stage="open", remedy="start again once it has been written"
        )
    return found.hexdigest()


def _settled(facts: _Facts, begin_ns: int) -> bool:
    return max(facts.mtime_ns, facts.ctime_ns) < begin_ns - int(_SETTLED_S * 1e9)


def _opened(environ: Mapping[str, str], stack: contextlib.ExitStack) -> int | None:
    try:
        return stack.enter_context(state.opened(_PLACE, environ, make=True))
    except errors.Error:
        return None


def _read(environ: Mapping[str, str]) -> dict[_Facts, str]:
    """What is remembered; a record that can't be trusted or read is none."""
    try:
        with state.opened(_PLACE, environ) as folder:
            data = None if folder is None else state.read_file(folder, _NAME, _MAX_BYTES)
        entries = [] if data is None else records.load(data, _SCHEMA)["entries"]
    except (errors.Error, ValueError):
        return {}
    return {_Facts(e["size"], e["mtime_ns"], e["ctime_ns"], e["inode"]): e["sha256"] for e in entries}


def _write(folder: int, known: Mapping[_Facts, str]) -> None:
    entries = [
        {
            "size": facts.size,
            "mtime_ns": str(facts.mtime_ns),
            "ctime_ns": str(facts.ctime_ns),
            "inode": str(facts.inode),
            "sha256": digest,
        }
        for facts, digest in list(known.items())[-MAX_ENTRIES:]
    ]
    state.write_file(folder, _NAME, json.dumps({"format": FORMAT, "entries": entries}).encode() + b"\n")
