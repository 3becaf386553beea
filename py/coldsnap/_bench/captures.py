"""The captures that are measured: of the calibration's memory, to the drive and synced, each compared with the blob."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap import _native, errors
from coldsnap._bench.arena import DeviceArena, HostArena, Piece
from coldsnap._bench.cases import ALL_DIGESTS, SHARD, Measured, Setting
from coldsnap.settings import CAPTURE_RING

IDENTITY = json.dumps({"kind": "calibration"}, separators=(",", ":"))
# The way of the library where nobody chose anything (`settings.CAPTURE_RING`); it has no names for these settings.
DEFAULT = Setting(CAPTURE_RING["chunk_bytes"], CAPTURE_RING["queue_depth"], CAPTURE_RING["read_threads"])


def rows_of(pieces: Sequence[Piece], arena: HostArena | DeviceArena) -> list[tuple[Any, ...]]:
    """The pieces as tensors, for the native writers."""
    rows: list[tuple[Any, ...]] = []
    for number, piece in enumerate(pieces):
        address = arena.address + piece.offset
        rows.append((piece.name, "U8", [piece.nbytes], [1], address, address, piece.nbytes, number, "", []))
    return rows


def write_artifact(folder: Path, pieces: Sequence[Piece], source: HostArena) -> None:
    """Write the pieces as one artifact at `folder`, from host memory."""
    _native.write_artifact(str(folder), rows_of(pieces, source), IDENTITY, "{}", "{}")


class Capturer:
    """The memory that restores fill with the source's bytes, and the folder that captures go to."""

    def __init__(
        self,
        folder: Path,
        artifact: Path,
        pieces: list[Piece],
        arena: HostArena | DeviceArena,
        device: str,
        pinned_max_bytes: int,
    ) -> None:
        self.device = device
        self.payload_bytes = sum(each.nbytes for each in pieces)
        self.extents = len(pieces)
        self.pinned_max_bytes = pinned_max_bytes
        self._folder = folder
        self._rows = rows_of(pieces, arena)
        self._manifest_sha256 = _native.open_artifact(str(artifact), None).manifest_sha256
        self._arena = arena  # the addresses above live as long as it does

    def run(self, route: str, setting: Setting, place: str) -> dict[str, Any]:
        """Capture once, with everything that a user's capture has; remove the file again; give the native report.

        Raises:
            DataLossError: What was written is not what the blob holds.
            As `_native.capture_shard`.
        """
        self._folder.mkdir()
        try:
            report: dict[str, Any] = _native.capture_shard(
                str(self._folder),
                SHARD,
                self._rows,
                IDENTITY,
                "{}",
                self.device,
                backend=route,
                chunk_bytes=setting.chunk_bytes,
                queue_depth=setting.queue_depth,
                write_threads=setting.threads,
                pinned_max_bytes=self.pinned_max_bytes,
                preverified=False,
                check_source=True,
                streams=[],
                progress=_keep_going,
                place=place,
            )
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._require_same(json.loads(report["record"])["manifest_sha256"], route)
        return report

    def _require_same(self, manifest_sha256: str, route: str) -> None:
        # The manifest holds the digests of all extents, which the capture took of the memory that it read.
        if manifest_sha256 != self._manifest_sha256:
            raise errors.DataLossError(
                f"compare a capture by route {route} with the blob: its manifest is {manifest_sha256}, the blob's "
                f"{self._manifest_sha256}, and both are of the same bytes",
                stage="digest",
                remedy="please report it with the machine's results.json",
            )


@dataclass
class CaptureCase(Measured):
    """A capture. `samples_s` are the seconds from its call until everything is on the drive, its ring included."""

    operation = "capture"
    subject: Capturer

    def _sample(self) -> None:
        report = self.subject.run(self.route, self.setting, self.place)
        self.found_place = report["place"]
        self.samples_s.append(report["wall_s"])
        self.residency_before.append(0.0)
        stages_s = report["stages_s"]
        self.limits.append(max(stages_s, key=lambda stage: stages_s[stage]))


def capture_cases(capturer: Capturer) -> list[CaptureCase]:
    """List the captures past the page cache as the library does them, with digests at each place that differs."""
    places = ["auto"] if capturer.device == "host" else ["auto", "host"]
    return [CaptureCase(capturer, "direct", "new", ALL_DIGESTS, DEFAULT, place) for place in places]


def buffered_cases(capturer: Capturer) -> list[CaptureCase]:
    """List the captures through the page cache, which end with a sync of all that was written."""
    return [CaptureCase(capturer, "buffered", "new", ALL_DIGESTS, DEFAULT)]


def _keep_going(done: int, total: int) -> bool:
    """Let Python look for signals while a capture runs; a handler's exception cancels it."""
    return False
