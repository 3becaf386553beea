"""``coldsnap capabilities``: what works here and why the rest does not, for people or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coldsnap import capabilities, terminal
from coldsnap._bench.sizes import format_size

_WORDS = {True: "yes", False: "no", None: "not known"}


def main(argv: Sequence[str]) -> int:
    """Say what works on this machine.

    Args:
        argv: The arguments after ``capabilities``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md). What does not work here is an answer and no error.
    """
    parser = terminal.parser_for(
        "capabilities", "Say what works on this machine and in this container, and why the rest does not."
    )
    parser.add_argument(
        "--path", metavar="DIR", help="try direct I/O there, with a file of 64 KiB that is removed again"
    )
    return terminal.run(parser, argv, "capabilities", _tell)


def _tell(flags: argparse.Namespace) -> int:
    report = capabilities.report(None if flags.path is None else Path(flags.path))
    if flags.json:
        terminal.print_json(report)
    else:
        _print(report)
    return 0


def _print(report: Mapping[str, Any]) -> None:
    gpu, limits, direct = report["gpu"], report["limits"], report["direct_io"]
    fields = [
        ("versions", ", ".join(f"{name} {value}" for name, value in report["versions"].items())),
        ("GPU", _answer(gpu, ", ".join(gpu["names"]))),
        ("digests on it", _answer(report["device_digests"])),
        ("GPUDirect", _answer(report["gds"])),
        ("direct I/O", "not tried: name a folder with --path" if direct is None else _answer(direct, _where(direct))),
        ("processors", _processors(limits)),
        ("memory", _size(limits["memory_headroom_bytes"], f" left, by {limits['memory_source']}", "no limit")),
        ("memlock", _size(limits["memlock_soft_bytes"], " (CUDA pins without regard to it)", "no limit")),
        ("requests", ", ".join(report["operations"])),
        ("not there yet", ", ".join(report["refused_operations"])),
    ]
    fields += [("not readable", note) for note in limits["notes"]]
    terminal.print_fields([(name, terminal.printable(value)) for name, value in fields])


def _answer(answer: Mapping[str, Any], seen: str = "") -> str:
    return ": ".join(part for part in (_WORDS[answer["works"]], seen, answer["why"]) if part)


def _where(direct: Mapping[str, Any]) -> str:
    return f"{direct['path']} on {direct['file_system'] or 'an unknown file system'}"


def _processors(limits: Mapping[str, Any]) -> str:
    quota = "no quota" if limits["cpu_quota"] is None else f"a quota of {limits['cpu_quota']:g}"
    ranks = f"{limits['local_ranks']} local ranks" if limits["local_ranks"] > 1 else "one rank"
    return f"{limits['cpus_per_rank']} for each rank: {limits['affinity_cpus']} in the mask, {quota}, {ranks}"


def _size(nbytes: int | None, more: str, none: str) -> str:
    return none if nbytes is None else format_size(nbytes) + more
