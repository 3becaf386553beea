"""``coldsnap store``: what a store has, whether it is intact, what may go, and artifacts as single files."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from coldsnap import errors, packing, quarantine, records, settings, store_place, terminal
from coldsnap._bench.sizes import format_size
from coldsnap.artifact import open_artifact, shard_names
from coldsnap.store import Store
from coldsnap.stored import StoredArtifact
from coldsnap.verify import verify

_MAX_BYTES = settings.STORE_MAX_BYTES.variable
_SHOWN = 12  # hex digits of a root: enough to tell artifacts apart, and to name one
_DAY_S = 86_400.0


def main(argv: Sequence[str]) -> int:
    """Run one of the store's commands.

    Args:
        argv: The arguments after ``store``.
    Returns:
        The exit code: 0, or that of the first error (docs/errors.md).
    """
    parser = _parser()
    name = next((argument for argument in argv if argument in _WORK), None)
    operation = f"store {name}" if name else "store"
    return terminal.run(parser, argv, operation, lambda flags: _WORK[flags.command](flags))


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument("--store", metavar="DIR", help="the store; COLDSNAP_STORE else, or the default")
    shared.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the answer as one line")
    parser = terminal.parser_for("store", "Look after a store.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared], allow_abbrev=False)

    add("ls", "list the artifacts, with size, age and quarantine")
    one = add("verify", "read artifacts in full and compare every digest")
    one.add_argument("roots", metavar="ROOT", nargs="*", help="their roots, or at least 8 digits of each; all of them")
    terminal.add_metrics(one)
    one = add("unquarantine", "verify an artifact in full, and end its quarantine if it is intact")
    one.add_argument("root", metavar="ROOT", help="its root, at least 8 digits of it, or its path")
    one.add_argument("--unverified", action="store_true", help="end it without looking: the artifact is gone")
    one = add("gc", "remove artifacts that are too old, and then the oldest until the rest is small enough")
    one.add_argument("--max-bytes", metavar="SIZE", help=f"most bytes of all, such as 500GiB; {_MAX_BYTES} else")
    one.add_argument("--max-age-days", metavar="DAYS", type=_days, help="most days since one was published")
    one.add_argument("--not-even-current", action="store_true", help="remove current artifacts too")
    one = add("rm", "remove one artifact, also a current or a damaged one, if nobody has it open")
    one.add_argument("root", metavar="ROOT", help="its root, or at least 8 digits of it")
    one = add("pack", "write an artifact as a tar file")
    one.add_argument("root", metavar="ROOT", help="its root, at least 8 digits of it, or its path")
    one.add_argument("file", metavar="FILE", help="the new file")
    one = add("unpack", "bring a packed artifact into the store, verified in full")
    one.add_argument("file", metavar="FILE", help="from coldsnap store pack")
    one.add_argument("--replace", action="store_true", help="make it current in the place of another")
    return parser


def _ls(flags: argparse.Namespace) -> int:
    entries = _store(flags).ls()
    held = {record.artifact_root: record.code for record in quarantine.every(os.environ)}
    if flags.json:
        rows = [{**_facts(entry), "quarantine": held.get(entry.artifact_root)} for entry in entries]
        terminal.print_json({"format": 1, "artifacts": rows})
        return 0
    terminal.print_table(
        ("root", "identity", "current", "size", "age", "state"),
        [
            [
                entry.artifact_root[:_SHOWN],
                entry.identity_digest[:_SHOWN],
                "yes" if entry.current else "",
                format_size(entry.nbytes),
                _age(entry.age_s),
                _state(entry, held),
            ]
            for entry in entries
        ],
        right=("size", "age"),
    )
    for entry in entries:
        if entry.problem:
            print(f"{entry.artifact_root[:_SHOWN]}: {terminal.printable(entry.problem)}")
    print(f"{len(entries)} artifacts, {format_size(sum(entry.nbytes for entry in entries))}")
    return 0


def _verify(flags: argparse.Namespace) -> int:
    store = _store(flags)
    entries = [_entry(store, root) for root in flags.roots] if flags.roots else store.ls()
    rows, worst = [], 0
    for entry in entries:
        row = {"artifact_root": entry.artifact_root, "ok": True, "payload_bytes": 0, "error": None}
        try:
            receipt = verify(entry.path, progress=terminal.progress())
            flags.receipts.append(receipt)
            row["payload_bytes"] = receipt.payload_bytes
            line = f"intact, {receipt.payload_bytes} bytes of weights in {receipt.wall_s:.1f} s"
        except errors.Error as failure:  # the others are looked at all the same
            assert failure.receipt is not None  # verify sees to it
            flags.receipts.append(failure.receipt)
            row |= {"ok": False, "error": failure.receipt.error}
            line, worst = str(failure), worst or failure.exit_code
        rows.append(row)
        if not flags.json:
            print(f"{entry.artifact_root[:_SHOWN]}: {terminal.printable(line)}")
    if flags.json:
        terminal.print_json({"format": 1, "artifacts": rows})
    elif worst:
        print(f"coldsnap store: {sum(not row['ok'] for row in rows)} of {len(rows)} are not intact", file=sys.stderr)
    return worst


def _unquarantine(flags: argparse.Namespace) -> int:
    if flags.unverified and records.HEX64.fullmatch(flags.root):
        root = flags.root
    else:
        path = _path(flags, flags.root)
        root = _root_of(path)
        if not flags.unverified:
            verify(path, progress=terminal.progress())
    ended = quarantine.remove(root, os.environ)
    if flags.json:
        terminal.print_json({"format": 1, "artifact_root": root, "ended": ended})
    else:
        print(f"{root}: {'its quarantine has ended' if ended else 'it was not under quarantine'}")
    return 0


def _gc(flags: argparse.Namespace) -> int:
    store = _store(flags)
    max_bytes = settings.parse_size(flags.max_bytes, "--max-bytes") if flags.max_bytes else store.cap.value
    if max_bytes is None and flags.max_age_days is None:
        raise errors.RequestInvalidError(
            "collect in a store: nothing says what is too much", remedy="give --max-bytes or --max-age-days"
        )
    max_age_s = None if flags.max_age_days is None else flags.max_age_days * _DAY_S
    removed = store.gc(max_bytes=max_bytes, max_age_s=max_age_s, keep_current=not flags.not_even_current)
    nbytes = sum(entry.nbytes for entry in removed)
    if flags.json:
        terminal.print_json({"format": 1, "removed": [_facts(entry) for entry in removed], "nbytes": nbytes})
        return 0
    for entry in removed:
        print(f"removed {entry.artifact_root}, {format_size(entry.nbytes)}")
    print(f"{len(removed)} artifacts removed, {format_size(nbytes)}")
    return 0


def _rm(flags: argparse.Namespace) -> int:
    store = _store(flags)
    entry = store.remove(_entry(store, flags.root).artifact_root)
    # A record is of the content. It outlives this copy, and would hold for what is captured anew.
    held = quarantine.find(entry.artifact_root, os.environ) is not None
    if flags.json:
        terminal.print_json({"format": 1, "removed": _facts(entry), "quarantined": held})
        return 0
    print(f"removed {entry.artifact_root}, {format_size(entry.nbytes)}")
    if held:
        print(f"its quarantine stays until: coldsnap store unquarantine --unverified {entry.artifact_root}")
    return 0


def _pack(flags: argparse.Namespace) -> int:
    path = _path(flags, flags.root)
    root = packing.pack(path, Path(flags.file), terminal.progress())
    nbytes = Path(flags.file).stat().st_size
    if flags.json:
        terminal.print_json({"format": 1, "artifact_root": root, "nbytes": nbytes})
    else:
        print(f"packed {root}, {format_size(nbytes)}")
    return 0


def _unpack(flags: argparse.Namespace) -> int:
    store = _store(flags, make=True)
    found = packing.unpack(Path(flags.file), store, replace=flags.replace, progress=terminal.progress())
    removed = [entry.artifact_root for entry in found.removed]
    if flags.json:
        known = {"artifact_root": found.artifact_root, "already_present": found.already_present, "removed": removed}
        terminal.print_json({"format": 1, **known})
    else:
        for root in removed:
            print(f"removed {root}, so that the store keeps to its cap")
        print(f"{found.artifact_root}: {'was there already' if found.already_present else 'unpacked'}, and is current")
    return 0


_WORK = {
    "ls": _ls,
    "verify": _verify,
    "unquarantine": _unquarantine,
    "gc": _gc,
    "rm": _rm,
    "pack": _pack,
    "unpack": _unpack,
}


def _store(flags: argparse.Namespace, *, make: bool = False) -> Store:
    found = store_place.chosen(flags.store, os.environ)
    if make:
        store_place.require_lasting(found)
    elif not Path(found.value).is_dir():
        raise errors.RequestInvalidError(
            f"use store {found.value}: it is no folder", remedy="give --store, or set COLDSNAP_STORE"
        )
    return Store(found.value)


def _entry(store: Store, root: str) -> StoredArtifact:
    if not 8 <= len(root) <= 64 or set(root) - set("0123456789abcdef"):
        raise errors.RequestInvalidError(
            f"find {root[:80]!r} in store {store.path}: it is no root", remedy="give 8 to 64 lower-case hex digits"
        )
    found = [entry for entry in store.ls() if entry.artifact_root.startswith(root)]
    if len(found) == 1:
        return found[0]
    why = "there is none" if not found else f"{len(found)} begin with it"
    raise errors.RequestInvalidError(
        f"find artifact {root} in store {store.path}: {why}", remedy="see coldsnap store ls"
    )


def _path(flags: argparse.Namespace, root: str) -> Path:
    """An artifact's folder, from its root in the store or from its path."""
    return Path(root) if os.sep in root or Path(root).is_dir() else _entry(_store(flags), root).path


def _root_of(path: Path) -> str:
    with open_artifact(path, shard=shard_names(path)[0]) as artifact:
        return artifact.artifact_root


def _facts(entry: StoredArtifact) -> dict[str, object]:
    names = ("identity_digest", "artifact_root", "current", "nbytes", "age_s", "problem")
    return {name: getattr(entry, name) for name in names}


def _state(entry: StoredArtifact, held: dict[str, str]) -> str:
    if entry.problem:
        return "UNREADABLE"
    code = held.get(entry.artifact_root)
    return "QUARANTINED" if code else ""


def _days(text: str) -> float:
    days = float(text)
    if not 0 <= days < math.inf:
        raise ValueError
    return days


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
