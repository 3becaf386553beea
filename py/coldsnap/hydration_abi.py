"""The C ABI of hydration through ctypes: the structs of cc/abi/hydration.h, and restores by a library that has it.

`Hydrator` is called as the extension module's is and answers in the same words, so that a restore can use either.
"""

from __future__ import annotations

import array
import ctypes
import os
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from coldsnap import errors

VERSION = 1  # COLDSNAP_HYDRATION_ABI_VERSION

# The settings that an ABI of this version can pass on: all whole numbers of the extension module's.
_NUMBERS = (
    "chunk_bytes",
    "queue_depth",
    "read_threads",
    "direct_chunk_bytes",
    "direct_queue_depth",
    "direct_read_threads",
    "hash_threads",
    "pinned_max_bytes",
)
_STAGES = ("open", "ring", "read", "digest", "copy", "drain", "publish")


class _Sized(ctypes.Structure):
    """A struct that knows its size; fields that are not given are zero."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class _OpenOptions(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_char_p),
        ("artifact", ctypes.c_char_p),
        ("shard", ctypes.c_char_p),
    )


class _ArtifactInUse(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("artifact_root", ctypes.c_char_p),
        ("shard", ctypes.c_char_p),
        ("payload_bytes", ctypes.c_uint64),
        ("extent_count", ctypes.c_uint64),
        ("extent_nbytes", ctypes.POINTER(ctypes.c_uint64)),
        ("blob_fd", ctypes.c_int64),
    )


class _Progress(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("user", ctypes.c_void_p),
        ("done_bytes", ctypes.c_uint64),
        ("total_bytes", ctypes.c_uint64),
    )


Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Progress))


class _RunOptions(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("backend", ctypes.c_char_p),
        ("verify", ctypes.c_char_p),
        *((name, ctypes.c_uint64) for name in _NUMBERS),
        ("streams", ctypes.POINTER(ctypes.c_size_t)),
        ("stream_count", ctypes.c_uint64),
        ("progress", Callback),
        ("confirm", Callback),
        ("user", ctypes.c_void_p),
        ("place", ctypes.c_char_p),
    )


class _Range(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extent", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
    )


class _Report(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("route_count", ctypes.c_uint64),
        ("routes", ctypes.POINTER(ctypes.c_char_p)),
        ("route_bytes", ctypes.POINTER(ctypes.c_uint64)),
        ("route_extents", ctypes.POINTER(ctypes.c_uint64)),
        ("reason_count", ctypes.c_uint64),
        ("reason_codes", ctypes.POINTER(ctypes.c_char_p)),
        ("reason_details", ctypes.POINTER(ctypes.c_char_p)),
        ("payload_bytes", ctypes.c_uint64),
        ("read_bytes", ctypes.c_uint64),
        ("chunk_bytes", ctypes.c_uint64),
        ("queue_depth", ctypes.c_uint64),
        ("pinned_bytes", ctypes.c_uint64),
        ("residency_before", ctypes.c_double),
        ("residency_after", ctypes.c_double),
        *((f"{stage}_s", ctypes.c_double) for stage in _STAGES),
        ("wall_s", ctypes.c_double),
        ("gds_path", ctypes.c_char_p),
        ("gds_evidence", ctypes.c_char_p),
        ("place", ctypes.c_char_p),
    )


class _LastError(_Sized):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("code", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
        ("stage", ctypes.c_char_p),
        ("remedy", ctypes.c_char_p),
        ("domain", ctypes.c_char_p),
        ("native", ctypes.c_int64),
    )


# By their names in the header, all after "coldsnap_hydration_".
STRUCTS: dict[str, type[_Sized]] = {
    "open_options": _OpenOptions,
    "artifact": _ArtifactInUse,
    "progress": _Progress,
    "run_options": _RunOptions,
    "range": _Range,
    "report": _Report,
    "error": _LastError,
}
_HANDLE, _POINTER = ctypes.c_void_p, ctypes.POINTER
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (ctypes.c_uint32, []),
    "open": (ctypes.c_int32, [_POINTER(_OpenOptions), _POINTER(_HANDLE)]),
    "use_artifact": (ctypes.c_int32, [_HANDLE, ctypes.c_char_p, ctypes.c_char_p]),
    "describe": (ctypes.c_int32, [_HANDLE, _POINTER(_ArtifactInUse)]),
    "prepare": (ctypes.c_int32, [_HANDLE, _POINTER(_RunOptions), _POINTER(ctypes.c_double)]),
    "run": (ctypes.c_int32, [_HANDLE, _POINTER(_Range), ctypes.c_size_t, _POINTER(_RunOptions), _POINTER(_Report)]),
    "close": (ctypes.c_int32, [_HANDLE]),
    "last_error": (ctypes.c_int32, [_POINTER(_LastError)]),
}


class Library:
    """The functions of a loaded library of this `VERSION`; each raises what the failed call says of itself."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._functions = {name: function_of(loaded, name) for name in FUNCTIONS}

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0 or fails."""
        if self._functions[name](*arguments) == 0:
            return
        last = _LastError()
        self._functions["last_error"](ctypes.byref(last))
        code, message, stage, remedy, domain = map(
            _text, (last.code, last.message, last.stage, last.remedy, last.domain)
        )
        raise errors.from_native(code, message, stage, remedy, domain, last.native)


def function_of(loaded: ctypes.CDLL, name: str) -> Any:
    """One function of the ABI, ready to be called.

    Raises:
        AttributeError: The library has no such function.
    """
    function = getattr(loaded, f"coldsnap_hydration_{name}")
    function.restype, function.argtypes = FUNCTIONS[name]
    return function


class Hydrator:
    """As `coldsnap._native.Hydrator`, by a library of the C ABI."""

    def __init__(self, library: Library, device: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._in_use: tuple[str, ...] | None = None
        library.call("open", ctypes.byref(_OpenOptions(device=device.encode())), ctypes.byref(self._handle))
        weakref.finalize(self, library.call, "close", self._handle)

    def prepare(self, route: str, settings: Mapping[str, int]) -> float:
        """Make ring, threads and streams before the first restore; seconds that it took."""
        options, seconds = _run_options(route, settings), ctypes.c_double()
        self._library.call("prepare", self._handle, ctypes.byref(options), ctypes.byref(seconds))
        return seconds.value

    def hydrate(
        self,
        artifact: Any,
        ranges: Sequence[tuple[int, int, int]],
        route: str,
        verify: str,
        settings: Mapping[str, int],
        streams: Sequence[int],
        tick: Callable[[int, int], object] | None,
        confirm: Callable[[], object] | None = None,
        trace: object | None = None,
        place: str = "auto",
    ) -> dict[str, Any]:
        """Fill ranges (extent, address, nbytes) of the device from the artifact; arguments as the module's.

        Raises:
            RouteUnavailableError: A trace was asked for.
            DataLossError: The artifact's path leads to another artifact by now.
            NotAdmittedError: The file that the library reads is not the one that was admitted.
        """
        if trace is not None:
            raise errors.RouteUnavailableError(
                f"trace a restore by the C ABI: version {VERSION} has no traces",
                remedy="unset COLDSNAP_HYDRATION_NATIVE_LIBRARY, or leave the trace out",
            )
        self._use(artifact, verify)
        calls = _Calls()
        options = _run_options(route, settings)
        options.verify, options.place = verify.encode(), place.encode()
        options.streams = (ctypes.c_size_t * len(streams))(*streams)
        options.stream_count = len(streams)
        options.progress = calls.callback(tick or (lambda done, total: False))
        if confirm is not None:
            options.confirm = calls.callback(lambda done, total: confirm() and None)
        report = _Report()
        numbers = _numbers_of(ranges)
        places = (_Range * len(ranges)).from_buffer(numbers) if ranges else None
        try:
            self._library.call("run", self._handle, places, len(ranges), ctypes.byref(options), ctypes.byref(report))
        except errors.DeviceLostError:
            raise  # outranks whatever stopped the restore: the process must learn of it
        except errors.Error:
            if calls.raised is None:
                raise
        if calls.raised is not None:
            raise calls.raised
        return _as_dict(report)

    def _use(self, artifact: Any, verify: str) -> None:
        """Let the library open what Python has open. It goes by the path, which may lead elsewhere by now."""
        wanted = artifact.path, artifact.shard, artifact.artifact_root
        if wanted != self._in_use:
            self._in_use = None
            self._library.call("use_artifact", self._handle, os.fsencode(artifact.path), artifact.shard.encode())
        found = _ArtifactInUse()
        self._library.call("describe", self._handle, ctypes.byref(found))
        if _text(found.artifact_root) != artifact.artifact_root:
            raise errors.DataLossError(
                f"open artifact {artifact.path} once more, by the library: it is {_text(found.artifact_root)} now, and "
                f"was {artifact.artifact_root}",
                stage="open",
                remedy="open it again; an artifact is never replaced in its own folder",
            )
        self._in_use = wanted
        if verify == "none" and _identity(found.blob_fd) != _identity(artifact.blob_fd):
            raise errors.NotAdmittedError(
                f"hydrate with verify none: the library opened another file at {artifact.path} than the one that was "
                "admitted, or it changed",
                stage="open",
                remedy="use crc32 or crc32+sha256, or admit it again",
            )


def _identity(fd: int) -> tuple[int, ...]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _run_options(route: str, settings: Mapping[str, int]) -> _RunOptions:
    if settings.keys() != set(_NUMBERS):
        differ = ", ".join(sorted(settings.keys() ^ set(_NUMBERS)))
        raise errors.RequestInvalidError(
            f"hydrate by the C ABI, version {VERSION}: it and the settings differ in {differ}"
        )
    return _RunOptions(backend=route.encode(), **settings)


def _numbers_of(ranges: Sequence[tuple[int, int, int]]) -> array.array[int]:
    size = ctypes.sizeof(_Range)  # a million ranges: ten times as fast as a million structs
    return array.array("Q", [number for row in ranges for number in (size, *row)])


class _Calls:
    """The functions that a restore calls. What they raise stops it, and is kept: ctypes drops what leaves a callback."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def callback(self, function: Callable[[int, int], object]) -> Any:
        # The handler of a signal runs, and raises, at the first instruction of whatever Python runs next. In a function
        # that is ahead of any `try`; a generator goes on within the one it stopped in.
        calls = self._calls(function)
        next(calls)
        return Callback(calls.send)

    def _calls(self, function: Callable[[int, int], object]) -> Generator[int, Any, None]:
        stop = False
        while True:
            try:
                while True:
                    progress = yield int(stop)
                    stop = bool(function(progress.contents.done_bytes, progress.contents.total_bytes))
            except GeneratorExit:
                return
            except BaseException as raised:
                self.raised, stop = self.raised or raised, True


def _as_dict(report: _Report) -> dict[str, Any]:
    routes = [
        {"route": _text(report.routes[i]), "bytes": report.route_bytes[i], "extents": report.route_extents[i]}
        for i in range(report.route_count)
    ]
    reasons = [
        {"code": _text(report.reason_codes[i]), "detail": _text(report.reason_details[i])}
        for i in range(report.reason_count)
    ]
    before, after = report.residency_before, report.residency_after
    return {
        "routes": routes,
        "reasons": reasons,
        "stages_s": {stage: getattr(report, f"{stage}_s") for stage in _STAGES},
        "wall_s": report.wall_s,
        "payload_bytes": report.payload_bytes,
        "read_bytes": report.read_bytes,
        "residency": {"before": before if before >= 0 else None, "after": after if after >= 0 else None},
        "chunk_bytes": report.chunk_bytes,
        "queue_depth": report.queue_depth,
        "place": _text(report.place),
        "pinned_bytes": report.pinned_bytes,
        "gds_path": report.gds_path and _text(report.gds_path),
        "gds_evidence": _text(report.gds_evidence),
    }


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
