"""The last receipts as OpenMetrics text, for node exporters that read files.

Of each operation the newest receipt is told, and how many of the kept ones ended in which way. A value that a receipt
doesn't know has no line. Source of the text's form: the OpenMetrics specification, version 1.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coldsnap import errors, new_file, quarantine, receipt_log

_SIMPLE = ("wall_s", "payload_bytes", "bytes_per_second", "ceiling_ratio")


class Family(NamedTuple):
    """A gauge: ``name`` ends with ``unit``, if there is one."""

    name: str
    unit: str
    help: str


_OK = Family("coldsnap_last_ok", "", "Whether the newest receipt of the operation says that it succeeded.")
_FAMILIES = {
    "wall_s": Family("coldsnap_last_wall_seconds", "seconds", "Time from the call to the verdict."),
    "payload_bytes": Family("coldsnap_last_payload_bytes", "bytes", "Bytes of weights that were asked for."),
    "bytes_per_second": Family("coldsnap_last_bytes_per_second", "", "Bytes of weights by time."),
    "ceiling_ratio": Family("coldsnap_last_ceiling_ratio", "ratio", "Share of this machine's measured ceiling."),
}
_STAGES = Family("coldsnap_last_stage_seconds", "seconds", "Time by stage; stages overlap.")
_ROUTES = Family("coldsnap_last_route_bytes", "bytes", "Bytes by the route that they took.")
_KEPT = Family("coldsnap_kept_receipts", "", "Receipts that are kept, by how they ended.")
_HELD = Family("coldsnap_quarantined_artifacts", "", "Artifacts under quarantine on this machine.")


def text(environ: Mapping[str, str], own: Sequence[Mapping[str, Any]] = ()) -> str:
    """The metrics of the kept receipts, of those of this process, and of what is under quarantine.

    Args:
        environ: Environment variables, which say where the state folder is.
        own: Receipts of this process, newest first; they are newer than those that are kept, or among them.
    Raises:
        PolicyRefusedError: The state folder, or a file in it, can't be trusted.
        IoError: It can't be read.
    """
    kept = receipt_log.last(receipt_log.KEPT, environ)
    newest: dict[str, Mapping[str, Any]] = {}
    for receipt in (*own, *kept):
        newest.setdefault(receipt["operation"], receipt)
    lines = [line for family, values in _families(newest, kept) for line in _lines(family, values)]
    return "\n".join([*lines, *_lines(_HELD, [({}, len(quarantine.every(environ)))]), "# EOF", ""])


def require_place(path: str | None) -> None:
    """Refuse a file that could not be written, before there is anything to write.

    Raises:
        RequestInvalidError: Its folder is not there, or it is a folder itself.
    """
    if path is not None and (not Path(path).parent.is_dir() or Path(path).is_dir() or not Path(path).name):
        raise errors.RequestInvalidError(
            f"write metrics to {path}: it is no file in a folder that is there", remedy="name a file in one"
        )


def write(path: str, content: str) -> None:
    """Write metrics to a file; readers see the old text or the new one, whole.

    Raises:
        IoError, NoSpaceError: A system call failed; the old text is still there.
    """
    new_file.replace_file(Path(path).parent, Path(path).name, content.encode())


Values = list[tuple[dict[str, str], Any]]


def _families(
    newest: Mapping[str, Mapping[str, Any]], kept: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Family, Values]]:
    by_operation = sorted(newest.items())
    yield _OK, [({"operation": name}, int(receipt["ok"])) for name, receipt in by_operation]
    for key in _SIMPLE:
        yield _FAMILIES[key], [({"operation": name}, receipt[key]) for name, receipt in by_operation]
    yield (
        _STAGES,
        [
            ({"operation": name, "stage": stage}, seconds)
            for name, receipt in by_operation
            for stage, seconds in receipt["stages_s"].items()
        ],
    )
    yield (
        _ROUTES,
        [
            ({"operation": name, "route": route["route"]}, route["bytes"])
            for name, receipt in by_operation
            for route in receipt["routes"]
        ],
    )
    ends = Counter((each["operation"], each["error"]["code"] if each["error"] else "ok") for each in kept)
    yield _KEPT, [({"operation": name, "end": end}, count) for (name, end), count in sorted(ends.items())]


def _lines(family: Family, values: Values) -> Iterator[str]:
    known = [(labels, value) for labels, value in values if value is not None]
    if not known:
        return
    yield f"# TYPE {family.name} gauge"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {family.help}"
    for labels, value in known:
        marks = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels.items())
        yield f"{family.name}{{{marks}}} {value}" if marks else f"{family.name} {value}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
