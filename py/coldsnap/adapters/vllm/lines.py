"""The one line that tells a user what a start did."""

from __future__ import annotations

from coldsnap.receipts import Receipt

# Of a receipt's reasons: why bytes took their route.
_WHY = ("resident", "cold", "mixed", "direct_refused_probe", "direct_served_from_memory", "unaligned", "explicit")


def restored(receipt: Receipt, nbytes: int, seconds: float) -> str:
    """As ``coldsnap: restored 15.3 GiB in 0.31 s (49.0 GB/s, route buffered: resident) verified crc32+sha256``.

    Args:
        receipt: Of the restore, of rank 0.
        nbytes: Of all ranks.
        seconds: Until the last of them had its bytes.
    """
    how = _rate(nbytes, seconds) + ", " + _routes(receipt)
    mode = receipt.verify["mode"]
    verified = "digests left out: preverified" if mode == "none" else f"verified {mode}"
    return f"coldsnap: restored {_size(nbytes)} in {seconds:.2f} s ({how}) {verified}"


def captured(receipt: Receipt, nbytes: int, seconds: float, *, at_once: bool = False) -> str:
    """As ``coldsnap: captured 15.3 GiB in 8.10 s (1.9 GB/s, route direct); the next start restores them``.

    Args:
        receipt: Of the capture, of rank 0.
        nbytes: Of all ranks.
        seconds: Until all of them were published.
        at_once: Whether it should have come later, and could not.
    """
    how = _rate(nbytes, seconds) + ", " + _routes(receipt)
    why = ", at the end of loading, since the finished weights can't be captured" if at_once else ""
    return f"coldsnap: captured {_size(nbytes)} in {seconds:.2f} s ({how}){why}; the next start restores"


def planned(later: str) -> str:
    """What a start says that captures later."""
    when = "once the engine is ready" if later == "ready" else "when the control socket is asked to"
    return f"coldsnap: the weights will be captured {when}"


def _routes(receipt: Receipt) -> str:
    names = " and ".join(dict.fromkeys(route["route"] for route in receipt.routes)) or "none"
    why = [code for code in dict.fromkeys(reason["code"] for reason in receipt.reasons) if code in _WHY]
    return f"route {names}" + (f": {', '.join(why)}" if why else "")


def _rate(nbytes: int, seconds: float) -> str:
    return f"{nbytes / seconds / 1e9:.3g} GB/s" if seconds > 0 else "at once"


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} bytes"
