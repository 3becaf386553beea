"""The settings: one table, one way to find each value, and who chose it.

Explicit argument > environment > default. A value that cannot work is refused with the values that can; nothing is
silently replaced. The receipt echoes every value with its source.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coldsnap import errors

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LEAF_BYTES = 64 * KIB  # the piece of the digest tree; chunks are whole pieces (docs/format.md, "Digests")
MAX_QUEUE_DEPTH = 64
MAX_READ_THREADS = 64
DEFAULT_READ_THREADS = 16  # more wait for the same drive or link
# Where no calibration has said more: the drive of a virtual machine is slower into more memory than a few megabytes (2.4
# GB/s in place of 2.2 with 32 slots of 4 MiB, bench/results/nvidia-h200-questions.json). No other drive was measured.
DIRECT_DEFAULTS = {"read_threads": 8, "queue_depth": 16, "chunk_bytes": 1 * MIB}
# A slot holds a small extent wherever it lies, after both its ends have moved to an alignment (cc/hydrate/plan.cc).
MIN_SLOT_BYTES = 3 * LEAF_BYTES

BACKENDS = ("python", "auto", "buffered", "direct", "gds")
CAPTURE_BACKENDS = ("python", "auto", "buffered", "direct")
VERIFY_MODES = ("crc32", "crc32+sha256", "none")
TRUST_MODES = ("inline", "preverified")
PLACES = ("auto", "host", "device", "both")
KEEP_POLICIES = ("auto", "yes", "no")
MODES = ("auto", "capture", "restore", "off")

# Of a capture, whose threads wait for the drive and not for a core (bench/micro/capture_bench.cc).
CAPTURE_RING = {"chunk_bytes": 1 * MIB, "queue_depth": 16, "read_threads": 16}
_SIZE_UNITS = {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_PREFIX = "COLDSNAP_HYDRATION_"
_OURS, _TESTS = "COLDSNAP_", "COLDSNAP_TEST_"  # what begins with the second one is between the build and its tests
# No rows of the table: a receipt holds no path, so it names the library among its versions.
NATIVE_LIBRARY = "COLDSNAP_HYDRATION_NATIVE_LIBRARY"
NATIVE_SHA256 = "COLDSNAP_HYDRATION_NATIVE_SHA256"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and who chose it: ``explicit`` (an argument), ``environment``, ``profile`` or ``default``.

    An adapter's own default, for what nobody chose, is given as an argument of this type with ``adapter-default``.
    """

    value: Any
    source: str

    @property
    def chosen(self) -> bool:
        """Whether somebody chose it, so that it works as given or is refused."""
        return self.source in ("explicit", "environment")


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the table.

    Attributes:
        name: The key in receipts, and the argument of `coldsnap.hydrate` where there is one.
        variable: The environment variable.
        parse: Takes the given value and how to call it in a message; returns the checked value.
        default: Value, or None where it follows from the machine and the other settings.
        help: One line for people.
    """

    name: str
    variable: str
    parse: Callable[[Any, str], Any]
    default: Any
    help: str


def parse_size(value: Any, label: str) -> int:
    """Read a size in bytes: a positive integer, or text such as ``67108864``, ``64MiB``, ``1GiB``."""
    remedy = f"give {label} as a number of bytes or as text such as 64MiB"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise errors.RequestInvalidError(f"read {label}: {_show(value)} is no size", remedy=remedy)
    if isinstance(value, str):
        text = value.strip()
        digits = text.rstrip("KMGiB").rstrip()
        unit = text[len(digits) :].strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 16) or unit not in _SIZE_UNITS:
            raise errors.RequestInvalidError(f"read {label}: {_show(value)} is no size", remedy=remedy)
        value = int(digits) * _SIZE_UNITS[unit]
    nbytes: int = value
    if not 0 < nbytes < 1 << 53:
        raise errors.RequestInvalidError(f"read {label}: {nbytes} bytes is not between 1 and 2^53-1", remedy=remedy)
    return nbytes


def _parse_chunk(value: Any, label: str) -> int:
    size = parse_size(value, label)
    if size % LEAF_BYTES:
        near = max(LEAF_BYTES, round(size / LEAF_BYTES) * LEAF_BYTES)
        raise errors.RequestInvalidError(
            f"read {label}: {size} bytes is not a multiple of {LEAF_BYTES}", remedy=f"the nearest that is: {near}"
        )
    return size


def _count(most: int) -> Callable[[Any, str], int]:
    def parse(value: Any, label: str) -> int:
        remedy = f"give {label} as a whole number from 1 to {most}"
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) <= 16:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise errors.RequestInvalidError(f"read {label}: {_show(value)} is out of range", remedy=remedy)
        return value

    return parse


def _one_of(known: tuple[str, ...]) -> Callable[[Any, str], str]:
    def parse(value: Any, label: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise errors.RequestInvalidError(
                f"read {label}: {_show(value)} is unknown", remedy=f"the known ones: {', '.join(known)}"
            )
        return value

    return parse


def _parse_path(value: Any, label: str) -> str:
    # The processes of one engine may have different working folders, and each would mean another place.
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:
        raise errors.RequestInvalidError(
            f"read {label}: {_show(value)} is no absolute path", remedy="give an absolute path"
        )
    return value


def _parse_rate(value: Any, label: str) -> int:
    rate = parse_size(value, label)
    if rate < MIB:  # a piece of 4 MiB would take so long that other ranks take this one for dead
        raise errors.RequestInvalidError(
            f"read {label}: {rate} bytes a second is below {MIB}", remedy=f"give at least {MIB}"
        )
    return rate


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


HYDRATION: tuple[Spec, ...] = (
    Spec("backend", _PREFIX + "BACKEND", _one_of(BACKENDS), "python", "who moves the bytes, and by which route"),
    Spec("verify", _PREFIX + "VERIFY", _one_of(VERIFY_MODES), "crc32+sha256", "digests compared before publishing"),
    Spec(
        "verify_mode", "COLDSNAP_HIBERNATE_VERIFY_MODE", _one_of(TRUST_MODES), "inline", "preverified: trust a marker"
    ),
    Spec("place", "COLDSNAP_VERIFY_PLACE", _one_of(PLACES), "auto", "where digests are computed"),
    Spec("chunk_bytes", _PREFIX + "CHUNK_BYTES", _parse_chunk, 4 * MIB, "bytes of one ring slot and of one read"),
    Spec("queue_depth", _PREFIX + "QUEUE_DEPTH", _count(MAX_QUEUE_DEPTH), None, "slots in flight; 2 x read threads"),
    Spec("read_threads", _PREFIX + "READ_THREADS", _count(MAX_READ_THREADS), None, "readers; usable cores, at most 16"),
    Spec("pinned_max_bytes", "COLDSNAP_PINNED_MAX_BYTES", parse_size, 512 * MIB, "most pinned memory, all local ranks"),
)

# Of `coldsnap.capture`. Chunk, depth and threads have no names there yet: they follow from the machine.
CAPTURE: tuple[Spec, ...] = (
    Spec("backend", "COLDSNAP_CAPTURE_BACKEND", _one_of(CAPTURE_BACKENDS), "python", "who writes, and by which route"),
    Spec(
        "verify_mode",
        "COLDSNAP_HIBERNATE_VERIFY_MODE",
        _one_of(TRUST_MODES),
        "inline",
        "preverified: read the durable file again before it is published",
    ),
    Spec("place", "COLDSNAP_VERIFY_PLACE", _one_of(PLACES), "auto", "where digests of the tensors are computed"),
    Spec("pinned_max_bytes", "COLDSNAP_PINNED_MAX_BYTES", parse_size, 512 * MIB, "most pinned memory, all local ranks"),
)

# No row of the table, since it holds for what comes after a restore: `coldsnap.keep_cached`.
KEEP_CACHED = Spec(
    "keep_cached", "COLDSNAP_KEEP_CACHED", _one_of(KEEP_POLICIES), "auto", "whether the blob stays in the page cache"
)

# Of a store: which one where none is named (`coldsnap.store_place` knows the default), and how much may be in it.
STORE = Spec("store", "COLDSNAP_STORE", _parse_path, None, "the store, where none is named")
STORE_MAX_BYTES = Spec(
    "store_max_bytes", "COLDSNAP_STORE_MAX_BYTES", parse_size, None, "most bytes of all blobs in a store"
)

# Of an engine's start, for its adapter.
ARTIFACT = Spec("artifact", "COLDSNAP_ARTIFACT", _parse_path, None, "one artifact to restore from; never written to")
MODE = Spec("mode", "COLDSNAP_MODE", _one_of(MODES), "auto", "what a start may do: restore, capture, both or neither")
CONTROL = Spec("control", "COLDSNAP_CONTROL", _parse_path, None, "a Unix socket, by which the running engine is asked")
# A capture beside a serving engine may take an eighth of a drive of 2 GB/s (bench/results/README.md) and less than a
# hundredth of a PCIe 5 link: 60 GB, which are read twice, take eight minutes.
CAPTURE_RATE = Spec(
    "capture_rate",
    "COLDSNAP_CAPTURE_RATE",
    _parse_rate,
    256 * MIB,
    "bytes a second that a capture reads of an engine that serves",
)
START: tuple[Spec, ...] = (STORE, STORE_MAX_BYTES, ARTIFACT, MODE, CONTROL, CAPTURE_RATE)

# What other modules read (`coldsnap.state`, `coldsnap.trust`), and what only the build does.
STATE_VARIABLES = (
    "COLDSNAP_STATE_DIR",
    "COLDSNAP_TRUST_DIR",
    "COLDSNAP_RECEIPT_DIR",
    "COLDSNAP_PROFILE",
    "COLDSNAP_TRUST_MANIFEST",
    "COLDSNAP_TRUST_GROUP",
)
BUILD_VARIABLES = (
    "COLDSNAP_PYTHON",
    "COLDSNAP_CUDA",
    "COLDSNAP_TORCH",
    "COLDSNAP_DEPS",
    "COLDSNAP_NO_INSTALL",
    "COLDSNAP_RULES_CUDA",
    "COLDSNAP_BUILDIFIER",
)
KNOWN: frozenset[str] = frozenset(
    {spec.variable for spec in (*HYDRATION, *CAPTURE, *START, KEEP_CACHED)}
    | {NATIVE_LIBRARY, NATIVE_SHA256, *STATE_VARIABLES, *BUILD_VARIABLES}
)


def resolve(explicit: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Setting]:
    """Find every setting's value and source.

    Args:
        explicit: Arguments by `Spec.name`; None means not given.
        environ: Environment variables; an empty one counts as unset.
    Returns:
        One `Setting` per row of `HYDRATION`, by name. ``queue_depth`` and ``read_threads`` are still None where nobody
        chose them: `fit_ring` derives them, since that needs the machine.
    Raises:
        RequestInvalidError: A value is of the wrong kind, out of range or unknown.
    """
    _warn_of_unknown(environ)
    native_library(environ)  # refuses what makes no sense, also where no library will be called
    return {spec.name: resolve_one(spec, explicit.get(spec.name), environ) for spec in HYDRATION}


def resolve_capture(explicit: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Setting]:
    """Find the settings of a capture, as `resolve` does those of a restore.

    Returns:
        One `Setting` per row of `CAPTURE`, and the ring's: ``chunk_bytes``, ``queue_depth`` and ``read_threads``, which
        `fit_ring` may lower.
    Raises:
        RequestInvalidError: A value is of the wrong kind, out of range or unknown.
    """
    _warn_of_unknown(environ)
    found = {spec.name: resolve_one(spec, explicit.get(spec.name), environ) for spec in CAPTURE}
    return found | {name: Setting(value, "default") for name, value in CAPTURE_RING.items()}


def refuse_device_digests(place: str) -> None:
    """The provider python computes digests on the host, so places that need a kernel are refused.

    Raises:
        RouteUnavailableError: ``place`` is ``device`` or ``both``.
    """
    if place in ("device", "both"):
        raise errors.RouteUnavailableError(
            f"compute digests with place {place}: the provider python computes them on the host",
            stage="digest",
            remedy="use place host or auto, or a native backend: auto, buffered or direct",
        )


def native_library(environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    """The library to call in the place of the extension module, and the SHA-256 that it must have; None if none is named.

    Raises:
        RequestInvalidError: The digest is none, or there is a digest and no library.
    """
    path, sha256 = environ.get(NATIVE_LIBRARY, ""), environ.get(NATIVE_SHA256, "").lower()
    if sha256 and not path:
        raise errors.RequestInvalidError(
            f"read {NATIVE_SHA256}: {NATIVE_LIBRARY} names no library, so there is nothing to compare it with",
            remedy="set both, or neither",
        )
    if sha256 and not (len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")):
        raise errors.RequestInvalidError(
            f"read {NATIVE_SHA256}: {_show(sha256)} is no SHA-256", remedy="give its 64 hexadecimal digits"
        )
    return (path, sha256 or None) if path else None


def resolve_one(spec: Spec, given: Any, environ: Mapping[str, str]) -> Setting:
    """Find one setting's value and source; ``given`` is the argument, None where there is none.

    A `Setting` as the argument is an adapter's default: it stands in the place of the table's, behind the environment.

    Raises:
        RequestInvalidError: The value is of the wrong kind, out of range or unknown.
    """
    default = given if isinstance(given, Setting) else Setting(spec.default, "default")
    if given is not None and given is not default:
        return Setting(spec.parse(given, spec.name), "explicit")
    text = environ.get(spec.variable, "")
    if text:
        return Setting(spec.parse(text, spec.variable), "environment")
    return default


def backend_reason(backend: Setting, variable: str) -> dict[str, str]:
    """Why it is this backend, for a receipt's reasons.

    Args:
        backend: The setting.
        variable: The environment variable that chooses it.
    """
    if backend.source == "adapter-default":
        return {"code": "adapter_default", "detail": f"the adapter's default backend is {backend.value}"}
    by = {"explicit": "the argument backend", "environment": variable}.get(backend.source)
    if by is None:
        return {"code": "provider_default", "detail": "the library's default provider is python"}
    return {"code": "explicit", "detail": f"{by} is {backend.value}"}


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    for variable in environ:
        if variable.startswith(_OURS) and not variable.startswith(_TESTS) and variable not in KNOWN:
            import difflib  # only a misspelling pays for it

            near = difflib.get_close_matches(variable, sorted(KNOWN), n=1, cutoff=0.0)[0]
            warnings.warn(
                f"{variable} is no setting of coldsnap and has no effect; the nearest is {near}", stacklevel=4
            )


def default_read_threads(limits: Mapping[str, Any]) -> int:
    """How many readers there are where nobody chose it: this rank's share of the usable processors, at most 16.

    Args:
        limits: From `coldsnap._native.limits`.
    """
    cores: int = limits["cpus_per_rank"]
    return min(cores, DEFAULT_READ_THREADS)


def apply_profile(
    settings: Mapping[str, Setting], buffered: Mapping[str, int], direct: Mapping[str, int]
) -> dict[str, Setting]:
    """Take from a calibration what nobody chose.

    Args:
        settings: From `resolve`.
        buffered: What `coldsnap.profile.values` has for that route.
        direct: The same; its values go to ``direct_read_threads``, ``direct_queue_depth`` and ``direct_chunk_bytes``,
            which hold where the drive decides how long it takes. Without it those are `DIRECT_DEFAULTS`. Where somebody
            chose the setting, they follow the one without ``direct_`` and are not there.
    """
    full = dict(settings)
    for name, value in (buffered or direct).items():
        if not full[name].chosen:
            full[name] = Setting(value, "profile")
    for name, value in (DIRECT_DEFAULTS | dict(direct)).items():
        if not full[name].chosen:
            full["direct_" + name] = Setting(value, "profile" if direct else "default")
    return full


def fit_ring(
    settings: Mapping[str, Setting], limits: Mapping[str, Any]
) -> tuple[dict[str, Setting], list[dict[str, str]]]:
    """Derive read threads and queue depth where nobody chose them, and keep the ring within its cap.

    The cap on pinned memory is ``pinned_max_bytes``, or a quarter of what the container's memory limit leaves if that
    is less, divided by the local ranks. A depth or a chunk that nobody chose shrinks to fit, and a reason says so. What
    was chosen and cannot fit is refused: an explicit choice works or says why not.

    Args:
        settings: From `resolve` or `apply_profile`.
        limits: What this process may use, from `coldsnap._native.limits`.
    Returns:
        The complete settings, and the reasons for the receipt.
    Raises:
        RequestInvalidError: The ring was chosen and is larger than the cap, or the cap has no room for the smallest.
    """
    full = dict(settings)
    if full["read_threads"].value is None:
        full["read_threads"] = Setting(default_read_threads(limits), "default")
    if full["queue_depth"].value is None:
        full["queue_depth"] = Setting(min(2 * full["read_threads"].value, MAX_QUEUE_DEPTH), "default")
    reasons = [{"code": "limit_unknown", "detail": note} for note in limits["notes"]]

    cap = _pinned_cap(full["pinned_max_bytes"].value, limits)
    if _ring_bytes(full) <= cap.nbytes:
        return full, reasons
    asked = _ring_text(full)
    full |= _shrunk(full["chunk_bytes"], full["queue_depth"], cap.nbytes)
    if _ring_bytes(full) > cap.nbytes:
        raise errors.RequestInvalidError(
            f"make a ring of {_ring_text(full)}: that is more than {cap.text}", stage="ring", remedy=cap.remedy
        )
    detail = f"a ring of {asked} is more than {cap.text}; it has {_ring_text(full)}"
    return full, [*reasons, {"code": "pinned_cap", "detail": detail}]


def native_settings(settings: Mapping[str, Setting], limits: Mapping[str, Any]) -> dict[str, int]:
    """What `coldsnap._native.Hydrator` takes, from complete settings and the limits that they were fitted to."""
    native = {name: settings[name].value for name in ("chunk_bytes", "queue_depth", "read_threads", "pinned_max_bytes")}
    for name in ("chunk_bytes", "queue_depth", "read_threads"):
        own = settings.get("direct_" + name)
        native["direct_" + name] = 0 if own is None else own.value  # 0: as the other one
    for name in ("chunk_bytes", "queue_depth"):  # the ring may have shrunk
        native["direct_" + name] = min(native["direct_" + name], native[name])
    return native | {"hash_threads": default_read_threads(limits)}


@dataclass(frozen=True, slots=True)
class _Cap:
    """The most pinned memory of one rank; ``text`` says which limit decided it, ``remedy`` how to get along."""

    nbytes: int
    text: str
    remedy: str


def _pinned_cap(pinned_max_bytes: int, limits: Mapping[str, Any]) -> _Cap:
    cap, why, more = pinned_max_bytes, "pinned_max_bytes", "raise COLDSNAP_PINNED_MAX_BYTES"
    headroom, ranks = limits["memory_headroom_bytes"], limits["local_ranks"]
    if headroom is not None and headroom // 4 < cap:
        cap, why = headroom // 4, f"a quarter of the {headroom} bytes that {limits['memory_source']} leaves"
        more = "give the container more memory"
    if ranks > 1:
        cap, why = cap // ranks, f"{why}, {cap}, divided by the {ranks} local ranks of {limits['local_ranks_source']}"
    return _Cap(cap, f"the cap on pinned memory, {cap} bytes ({why})", f"lower queue_depth or chunk_bytes, or {more}")


def _slot_bytes(chunk_bytes: int) -> int:
    return max(chunk_bytes, MIN_SLOT_BYTES)


def _ring_bytes(settings: Mapping[str, Setting]) -> int:
    depth: int = settings["queue_depth"].value
    return depth * _slot_bytes(settings["chunk_bytes"].value)


def _ring_text(settings: Mapping[str, Setting]) -> str:
    product = f"{settings['queue_depth'].value} x {_slot_bytes(settings['chunk_bytes'].value)}"
    return f"{product} = {_ring_bytes(settings)} bytes (queue_depth x chunk_bytes, of at least {MIN_SLOT_BYTES})"


def _shrunk(chunk: Setting, depth: Setting, cap: int) -> dict[str, Setting]:
    """Fewer slots, then smaller ones, as far as nobody chose them; what fits the cap, or the least there can be."""
    if not depth.chosen:
        fewest = 1 if chunk.chosen else 2  # of two, one is filled while the other is sent
        depth = Setting(max(fewest, min(depth.value, cap // _slot_bytes(chunk.value))), "default")
    if not chunk.chosen:
        fits = cap // depth.value // LEAF_BYTES * LEAF_BYTES
        chunk = Setting(max(LEAF_BYTES, min(chunk.value, fits)), "default")
    return {"chunk_bytes": chunk, "queue_depth": depth}
