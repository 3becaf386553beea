"""``coldsnap verify``: the command around `coldsnap.verify`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from coldsnap import terminal
from coldsnap.receipts import Receipt
from coldsnap.verify import verify


def main(argv: Sequence[str]) -> int:
    """Verify one artifact.

    Args:
        argv: The arguments after ``verify``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md).
    """
    parser = terminal.parser_for("verify", "Read a whole artifact, all of its shards, and compare every digest.")
    parser.add_argument("path", metavar="PATH", help="the artifact's folder, the one with artifact.json")
    parser.add_argument("--admit", action="store_true", help="then write trust markers for this machine")
    terminal.add_metrics(parser)
    return terminal.run(parser, argv, "verify", _verify)


def _verify(flags: argparse.Namespace) -> int:
    receipt = verify(flags.path, admit=flags.admit, progress=terminal.progress())
    flags.receipts.append(receipt)
    print(receipt.to_json() if flags.json else _summary(receipt))
    return 0


def _summary(receipt: Receipt) -> str:
    rate = (receipt.bytes_per_second or 0) / 1e9
    lines = [f"intact: {receipt.payload_bytes} bytes of weights in {receipt.wall_s:.1f} s, {rate:.2f} GB/s"]
    lines += [f"{reason['code']}: {reason['detail']}" for reason in receipt.reasons]
    return "\n".join(lines)
