"""Filling tensors from an artifact: checks and settings here, the bytes in a provider.

Order of a restore: settings, artifact, destinations, and only then the first byte. A restore that fails before it
leaves every destination as it was; one that fails after it leaves them all 0xFF. Either way the exception carries the
receipt.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coldsnap import errors, log, receipts, restore, settings
from coldsnap.artifact import Artifact, load_native
from coldsnap.receipts import Receipt
from coldsnap.ticker import Ticker, check_arguments


def hydrate(
    artifact: Artifact | str | os.PathLike[str],
    tensors: Mapping[str, Any],
    *,
    backend: str | None = None,
    verify: str | None = None,
    place: str | None = None,
    chunk_bytes: int | str | None = None,
    queue_depth: int | None = None,
    read_threads: int | None = None,
    streams: Sequence[Any] = (),
    partial: bool = False,
    progress: Callable[[int, int], object] | None = None,
    cancel: threading.Event | None = None,
) -> Receipt:
    """Fill tensors in place with the bytes that an artifact holds, and compare every digest before returning.

    Blocks. The destinations belong to the restore until it returns: nobody else may read or write them.

    Args:
        artifact: An opened artifact, or the path of one.
        tensors: Name to numpy array, torch CPU tensor or torch CUDA tensor, or object with DLPack or the CUDA array
            interface that may be written, all on one device, with the captured dtype, shape (elements) and strides
            (elements), sharing memory where the captured ones did. numpy takes BF16, F8 and F4 as unsigned integers of
            the same width. They are kept alive until this returns.
        backend: ``python``, ``auto``, ``buffered``, ``direct`` or ``gds``; default ``python``. An explicit one works or
            raises. ``gds`` needs an admitted artifact and ``verify="none"`` or COLDSNAP_HIBERNATE_VERIFY_MODE.
        verify: ``crc32`` or ``crc32+sha256`` (default): the digests compared. ``none`` needs a trust marker for this very
            file (`coldsnap.verify` with ``admit``).
        place: Where they are computed: ``host`` (from the staged bytes), ``device`` (by a kernel, over the final memory),
            ``both``, or ``auto``: the device where it has the kernel, but for host memory.
        chunk_bytes: Bytes of one read and of one ring slot, a multiple of 65536, or text such as ``"4MiB"`` (default).
        queue_depth: Ring slots in flight, 1 to 64; default twice the read threads, fewer where the cap on pinned memory
            asks for it. Native backends only.
        read_threads: Concurrent reads; default the usable cores, at most 16. Native backends only.
        streams: CUDA streams (``cudaStream_t`` as int, or objects with ``cuda_stream``) whose earlier work comes
            before the restore, and whose later work after it; the device's current torch stream when empty.
        partial: Whether captured tensors may be missing from ``tensors``. Tensors that shared memory when they
            were captured are restored together, also when only one of them is named.
        progress: Called with (bytes done, bytes in total), at most 20 times a second, last with both equal. An
            exception of it cancels the restore and is raised.
        cancel: Set it to stop.
    Returns:
        The receipt: routes, reasons, settings with their sources, stage times in seconds, bytes per second.
    Raises:
        RequestInvalidError: An argument, an environment variable or a tensor is of the wrong kind. Nothing was touched.
        LayoutError: Destinations differ from what was captured; both sides are named. Nothing was touched.
        RouteUnavailableError: The backend or place does not work here; the message says why. Nothing was touched.
        NotAdmittedError: Digests were to be left out, and no trust marker vouches for this very file. Nothing was
            touched; or it changed during the restore, and all destinations are 0xFF.
        FormatInvalidError: The artifact breaks the format. Nothing was touched.
        DataLossError: A file is short (refused before the first byte), or a digest differs: the extent, a tensor in
            it and the 64 KiB piece are named, and all destinations are 0xFF.
        PolicyRefusedError: Another restore of this process is running into the same memory, or
            COLDSNAP_TRUST_MANIFEST pins other artifacts.
        Cancelled: ``cancel`` was set; destinations that were touched are all 0xFF.
        IoError, CudaError, OutOfMemoryError: The machine failed; destinations that were touched are all 0xFF.
        DeviceLostError: Poisoning failed after another failure: end the process.
        Each has ``receipt``, the receipt of the failure.
    Source:
        Settings: docs/architecture.md, section 6; verification and publishing: section 7; receipt: section 9a.
    """
    given = {
        "backend": backend,
        "verify": verify,
        "place": place,
        "chunk_bytes": chunk_bytes,
        "queue_depth": queue_depth,
        "read_threads": read_threads,
    }
    return _hydrate(given, _new_hydrator, artifact, tensors, streams, partial, progress, cancel)


class Hydrator:
    """Restores with the same settings, again and again: the pinned ring, threads and streams are made once.

    One restore at a time. Of the process that made it: in a forked child it refuses to restore.

    Args:
        backend, verify, place, chunk_bytes, queue_depth, read_threads: As of `hydrate`. The environment is read at
            each restore, but for COLDSNAP_HYDRATION_NATIVE_LIBRARY, which is read at the first one for a device.
    Source:
        docs/architecture.md, section 9a.
    """

    def __init__(
        self,
        *,
        backend: str | None = None,
        verify: str | None = None,
        place: str | None = None,
        chunk_bytes: int | str | None = None,
        queue_depth: int | None = None,
        read_threads: int | None = None,
    ) -> None:
        self._given = {
            "backend": backend,
            "verify": verify,
            "place": place,
            "chunk_bytes": chunk_bytes,
            "queue_depth": queue_depth,
            "read_threads": read_threads,
        }
        self._hydrators: dict[str, restore.NativeHydrator] = {}
        self._closed = False

    def prepare(self, device: str) -> float:
        """Make ring, threads and streams for a device now, while an engine builds its model, say.

        Args:
            device: ``host`` or ``cuda:N``.
        Returns:
            Seconds that it took; 0 for the provider python, which needs none of it.
        Raises:
            RequestInvalidError: A setting can't be read, or the ring does not fit.
            RouteUnavailableError, OutOfMemoryError, CudaError: The device is not there, or can't be prepared.
        """
        found = settings.resolve(self._given, os.environ)
        if found["backend"].value == "python":
            return 0.0
        limits = load_native().limits()
        fitted, _ = settings.fit_ring(found, limits)
        seconds: float = self._native(device).native.prepare(
            found["backend"].value, settings.native_settings(fitted, limits)
        )
        return seconds

    def hydrate(
        self,
        artifact: Artifact | str | os.PathLike[str],
        tensors: Mapping[str, Any],
        *,
        streams: Sequence[Any] = (),
        partial: bool = False,
        progress: Callable[[int, int], object] | None = None,
        cancel: threading.Event | None = None,
    ) -> Receipt:
        """Fill tensors as `coldsnap.hydrate` does; the arguments, the receipt and what it raises are the same."""
        return _hydrate(self._given, self._native, artifact, tensors, streams, partial, progress, cancel)

    def close(self) -> None:
        """Give the ring, threads and streams back; a restore after that is refused."""
        self._closed = True
        self._hydrators.clear()

    def __enter__(self) -> Hydrator:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _native(self, device: str) -> restore.NativeHydrator:
        if self._closed:
            raise errors.RequestInvalidError("hydrate with a Hydrator that was closed", remedy="make another one")
        if device not in self._hydrators:
            self._hydrators[device] = _new_hydrator(device)
        return self._hydrators[device]


def _new_hydrator(device: str) -> restore.NativeHydrator:
    """The module's, or that of the library which the environment names."""
    named = settings.native_library(os.environ)
    if named is None:
        return restore.NativeHydrator(load_native().Hydrator(device))
    from coldsnap import native_library  # with ctypes, which `import coldsnap` leaves alone

    library = native_library.load(*named)
    return restore.NativeHydrator(library.hydrator(device), library.version)


def _hydrate(
    given: Mapping[str, Any],
    hydrators: Callable[[str], restore.NativeHydrator],
    artifact: Artifact | str | os.PathLike[str],
    tensors: Mapping[str, Any],
    streams: Sequence[Any],
    partial: bool,
    progress: Callable[[int, int], object] | None,
    cancel: threading.Event | None,
) -> Receipt:
    begin = time.monotonic()
    account = receipts.Account("hydrate")
    try:
        if not isinstance(partial, bool):
            raise errors.RequestInvalidError(
                f"hydrate: partial is a {type(partial).__name__}", remedy="give True or False"
            )
        check_arguments("hydrate", progress, cancel)
        account.settings = settings.resolve(given, os.environ)
        with restore.opened(artifact, account) as opened:
            ready = restore.prepare(opened, tensors, streams, partial, account, hydrators)
            with restore.claimed(ready.device, ready.ranges):
                ready.run(Ticker(progress, cancel))
    except BaseException as failure:
        account.wall_s = time.monotonic() - begin
        _attach(failure, log.done(account.receipt(failure)))
        raise
    account.wall_s = time.monotonic() - begin
    return log.done(account.receipt())


def _attach(failure: BaseException, receipt: Receipt) -> None:
    # An exception of somebody else's may have no room for it.
    with contextlib.suppress(AttributeError, TypeError):
        failure.receipt = receipt  # type: ignore[attr-defined]
