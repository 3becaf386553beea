"""``coldsnap inspect``: what an artifact is and holds, as a page for people or as JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from coldsnap import inspection, terminal
from coldsnap._bench.sizes import format_size

_FIRST = 20  # rows of tensors, unless all are asked for: what fits a screen


def main(argv: Sequence[str]) -> int:
    """Inspect one artifact.

    Args:
        argv: The arguments after ``inspect``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md).
    """
    parser = terminal.parser_for(
        "inspect", "Say what an artifact is and holds. Its weights are not read: coldsnap verify does that."
    )
    parser.add_argument("path", metavar="PATH", help="the artifact's folder, the one with artifact.json")
    parser.add_argument("--shard", metavar="NAME", help="one shard alone, such as shard-00-01-00")
    parser.add_argument("--all", action="store_true", help=f"list all tensors, not the first {_FIRST} of each shard")
    return terminal.run(parser, argv, "inspect", _inspect)


def _inspect(flags: argparse.Namespace) -> int:
    report = inspection.report(flags.path, flags.shard)
    if flags.json:
        terminal.print_json(report)
        return 0
    _print_summary(report)
    for shard in report["shards"]:
        print()
        _print_shard(shard, None if flags.all else _FIRST)
    return 0


def _print_summary(report: Mapping[str, Any]) -> None:
    shards = report["shards"]
    tensors = sum(len(shard["tensors"]) for shard in shards)
    counts = f"{tensors} tensors of {len(shards)} {'shard' if len(shards) == 1 else 'shards'}"
    fields = [
        ("artifact", report["artifact_root"]),
        ("identity", _compact(report["identity"])),
        ("captured", _captured(report["capture"])),
        ("weights", f"{report['payload_bytes']} bytes ({format_size(report['payload_bytes'])}) in {counts}"),
        ("on disk", f"{report['blob_bytes']} bytes of blobs, padding among them"),
    ]
    record = report["quarantine"]
    fields.append(("quarantine", "no" if record is None else f"YES, {record['code']}: {record['message']}"))
    terminal.print_fields([(name, terminal.printable(value)) for name, value in fields])


def _print_shard(shard: Mapping[str, Any], first: int | None) -> None:
    dtypes = [
        f"{dtype} {found['tensors']} ({format_size(found['nbytes'])})" for dtype, found in shard["dtypes"].items()
    ]
    resident = "unknown" if shard["resident"] is None else f"{100 * shard['resident']:.0f} %"
    fields = [
        ("shard", shard["name"]),
        ("manifest", shard["manifest_sha256"]),
        ("trust", f"{shard['trust']['state']}: {shard['trust']['detail']}"),
        ("dtypes", ", ".join(dtypes) or "none"),
        ("shared", f"{len(shard['shared'])} of {len(shard['extents'])} extents have several names"),
        ("in memory", f"{resident} of the blob is in the page cache"),
        ("scalars", _compact(shard["scalars"])),
    ]
    terminal.print_fields([(name, terminal.printable(value)) for name, value in fields])
    if shard["tensors"]:
        print()
        _print_tensors(shard, shard["tensors"][:first])
    left_out = len(shard["tensors"]) - (len(shard["tensors"]) if first is None else first)
    if left_out > 0:
        print(f"and {left_out} more: --all lists them")


def _print_tensors(shard: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for tensor in tensors:
        names = shard["shared"].get(str(tensor["extent"]), ())
        extent = "-" if tensor["extent"] is None else str(tensor["extent"]) + ("*" if names else "")
        shape = "x".join(map(str, tensor["shape"])) or "scalar"
        rows.append([terminal.printable(tensor["name"]), tensor["dtype"], shape, str(tensor["nbytes"]), extent])
    terminal.print_table(("tensor", "dtype", "shape", "bytes", "extent"), rows, right=("bytes", "extent"))
    if any(row[-1].endswith("*") for row in rows):
        print("* shares its extent with other names")


def _captured(capture: Mapping[str, Any]) -> str:
    """The account of the capture, which no digest covers, so anything may stand there."""
    known = dict(capture)
    when = str(known.pop("time_ns", ""))
    if when.isascii() and when.isdigit() and len(when) < 20:
        known = {"at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(when) // 10**9)), **known}
    return ", ".join(f"{name} {value}" for name, value in known.items()) or "nothing is noted"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
