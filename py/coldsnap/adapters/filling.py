"""Filling a model's tensors from its artifact, and the artifact's blob in the page cache around that.

    with Filling(artifact, device) as filling:    the ring is made, and the blob comes into the page cache
        ...                                       the engine builds its model meanwhile
        filling.fill(tensors)                     what is not there yet is read from the drive
    reason = for_the_next_start(artifact)         what is missing there comes in slowly, for the next start

No start depends on the page cache: what goes wrong with it is a reason.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from coldsnap import errors
from coldsnap.adapters import early
from coldsnap.adapters.configuration import BACKEND
from coldsnap.artifact import Artifact
from coldsnap.hydrate import Hydrator
from coldsnap.keep_cached import KeepCached, keep
from coldsnap.receipts import Receipt

FAILED = "keep_cached_failed"


class Filling:
    """Fills tensors of a model that is being built.

    Args:
        artifact: The opened artifact.
        device: Where the weights go: ``host`` or ``cuda:N``.
        progress: Told bytes done and in total, of the first fill.

    Attributes:
        receipt: Of the first fill; None before that.
        ahead: The reader that brings the blob into the page cache; None where the launch has one already, where the restore
            reads past the page cache, or it can't be.
        since_launch: Whether a reader that began with the launch is at work.
    """

    def __init__(self, artifact: Artifact, device: str, progress: Callable[[int, int], object] | None = None) -> None:
        self.receipt: Receipt | None = None
        self.ahead: KeepCached | None = None
        self.since_launch = False
        self._artifact, self._device, self._progress = artifact, device, progress
        self._hydrator = Hydrator(backend=BACKEND)  # type: ignore[arg-type]  # an adapter's default
        self._preparing = threading.Thread(target=self._prepare, name="coldsnap-prepare")

    def __enter__(self) -> Filling:
        self.since_launch = early.is_reading()
        if not self.since_launch:
            self.ahead = early.reader(self._artifact)
        self._preparing.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end_preparing()
        self._hydrator.close()

    def fill(self, tensors: Mapping[str, Any], *, partial: bool = False) -> None:
        """Give tensors their bytes, verified; arguments and failures are as of `coldsnap.hydrate`."""
        self._end_preparing()
        receipt = self._hydrator.hydrate(
            self._artifact, tensors, partial=partial, progress=self._progress if self.receipt is None else None
        )
        self.receipt = self.receipt or receipt

    def _end_preparing(self) -> None:
        self._preparing.join()
        early.end()
        if self.ahead is not None:
            self.ahead.stop()

    def _prepare(self) -> None:
        with contextlib.suppress(errors.Error):  # the restore itself will say what is wrong
            self._hydrator.prepare(self._device)


def for_the_next_start(opened: Callable[[], contextlib.AbstractContextManager[Artifact]]) -> dict[str, str]:
    """Bring what is missing of a blob into the page cache, slowly and in the background.

    Args:
        opened: Opens the artifact, or gives one that is open.
    Returns:
        Code and detail, as of `coldsnap.keep_cached`; `FAILED` where the artifact can't be opened, too.
    """
    try:
        with opened() as artifact:
            return keep(artifact, os.environ).reason
    except errors.Error as cause:
        return {"code": FAILED, "detail": f"the blob is not brought into the page cache for the next start: {cause}"}
