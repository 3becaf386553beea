"""What coldsnap raises: one class per error code of the contract, each also the built-in that Python users expect.

``error.code`` and ``error.exit_code`` are for programs and stable; ``str(error)`` is for people: what was being done,
to what, with which numbers, the cause, and the remedy where one is known. C++ raises the same classes through
`from_native`, so ``except coldsnap.DataLossError`` catches both providers.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from coldsnap.receipts import Receipt


class Error(Exception):
    """Base of everything that coldsnap raises on purpose.

    Attributes:
        code: Stable name of the kind of failure, as in ``receipt.error["code"]``.
        exit_code: What a process that ends on this error exits with.
        message: The failure without its remedy.
        stage: The part of the data path that failed: ``open``, ``file``, ``ring``, ``device``, ``digest``,
            ``publish``, or ``capture`` when an artifact was being written; empty when none began.
        remedy: What the reader can do about it; empty when nothing is known to help.
        native: ``(domain, number)`` that the system gave, such as ``("errno", 28)`` or ``("cuda", 2)``; else None.
        receipt: The failure receipt of the operation that raised this, once there is one.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        stage: str = "",
        remedy: str = "",
        native: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        self.remedy = remedy
        self.native = native
        self.receipt: Receipt | None = None
        if isinstance(self, OSError) and native is not None and native[0] == "errno":
            _set_errno(self, native[1])

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    # OSError and BaseException rebuild themselves from positional arguments alone; ours are named.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.stage, self.remedy, self.native), {"receipt": self.receipt}


def _set_errno(error: OSError, number: int) -> None:
    error.errno = number
    error.strerror = os.strerror(number)


def _rebuild(kind: type[Error], message: str, stage: str, remedy: str, native: tuple[str, int] | None) -> Error:
    return kind(message, stage=stage, remedy=remedy, native=native)


class RequestInvalidError(Error, ValueError):
    """An argument, a setting or a request is wrong; nothing was touched."""

    code = "request_invalid"
    exit_code = 2


class PolicyRefusedError(Error, PermissionError):
    """The request is understood, and a rule of this machine or of the store forbids it."""

    code = "policy_refused"
    exit_code = 3


class LayoutError(Error, ValueError):
    """The destinations do not have the captured names, dtypes, shapes, strides or aliasing; nothing was touched."""

    code = "layout_mismatch"
    exit_code = 3


class RouteUnavailableError(Error, RuntimeError):
    """The route or place that was asked for does not work here; no other one was taken in its stead."""

    code = "route_unavailable"
    exit_code = 3


class NotAdmittedError(Error, PermissionError):
    """Less verification was asked for than an artifact without a trust marker may have."""

    code = "not_admitted"
    exit_code = 3


class QuarantinedError(Error, PermissionError):
    """The artifact failed before and is under quarantine."""

    code = "quarantined"
    exit_code = 3


class ExistsError(Error, FileExistsError):
    """The place to write to is taken; artifacts are never replaced in place."""

    code = "exists"
    exit_code = 3


class DataLossError(Error, OSError):
    """Stored bytes are missing or are not those that were captured. Destinations that were touched are all 0xFF."""

    code = "data_loss"
    exit_code = 4


class FormatInvalidError(Error, ValueError):
    """The artifact's own description breaks the format; nothing was touched."""

    code = "format_invalid"
    exit_code = 4


class IoError(Error, OSError):
    """The operating system refused an operation on a file; ``errno`` says which way."""

    code = "io"
    exit_code = 5


class NoSpaceError(Error, OSError):
    """The file system or its quota is full."""

    code = "no_space"
    exit_code = 5


class CudaError(Error, RuntimeError):
    """A CUDA call failed."""

    code = "cuda"
    exit_code = 5


class OutOfMemoryError(Error, MemoryError):
    """Host, pinned or device memory ran out."""

    code = "out_of_memory"
    exit_code = 5


class DeviceLostError(Error, RuntimeError):
    """Destinations could not even be poisoned after a failure: their content is undefined, the process must end."""

    code = "device_lost"
    exit_code = 5


class TimedOutError(Error, TimeoutError):
    """A time limit passed."""

    code = "timeout"
    exit_code = 5


class InternalError(Error, RuntimeError):
    """A broken promise of our own: please report it."""

    code = "internal"
    exit_code = 1


class Cancelled(Error, RuntimeError):
    """The caller asked to stop. Destinations that were touched are all 0xFF."""

    code = "cancelled"
    exit_code = 130


ERROR_CLASSES: tuple[type[Error], ...] = (
    RequestInvalidError,
    PolicyRefusedError,
    LayoutError,
    RouteUnavailableError,
    NotAdmittedError,
    QuarantinedError,
    ExistsError,
    DataLossError,
    FormatInvalidError,
    IoError,
    NoSpaceError,
    CudaError,
    OutOfMemoryError,
    DeviceLostError,
    TimedOutError,
    InternalError,
    Cancelled,
)
_CLASS_OF_CODE = {kind.code: kind for kind in ERROR_CLASSES}
# The same table as CodeOfErrno in cc/base/status.cc, so that both providers say the same.
_CLASS_OF_ERRNO: dict[int, type[Error]] = {
    errno.ENOSPC: NoSpaceError,
    errno.EDQUOT: NoSpaceError,
    errno.EFBIG: NoSpaceError,
    errno.ENOMEM: OutOfMemoryError,
    errno.EEXIST: ExistsError,
}


def from_native(
    code: str,
    message: str,
    stage: str = "",
    remedy: str = "",
    native_domain: str | None = None,
    native_number: int = 0,
) -> Error:
    """Make the exception for a Status of the C++ core.

    Args:
        code: The code's stable name.
        message: What was being done, to what, with which numbers, and the cause.
        stage: The part of the data path that failed; may be empty.
        remedy: What helps; may be empty.
        native_domain: Whose number ``native_number`` is: ``errno``, ``cuda`` or ``gds``; ``none`` or None for nobody's.
        native_number: The number as that system gave it.
    Returns:
        An exception to raise. A code that this version does not know gives `InternalError`, with the code in the text.
    """
    native = None if native_domain in (None, "", "none") else (str(native_domain), native_number)
    kind = _CLASS_OF_CODE.get(code)
    if kind is None:
        kind, message = InternalError, f"{message} (error code {code!r}, which this version of coldsnap does not know)"
    return kind(message, stage=stage, remedy=remedy, native=native)


def from_errno(error: OSError, doing: str, *, stage: str = "", remedy: str = "") -> Error:
    """Make the exception for a failed system call in Python, with the code that C++ would give.

    Args:
        error: What the call raised.
        doing: What was being done, to what, with which numbers.
        stage: The part of the data path that failed.
        remedy: What helps; may be empty.
    """
    number = error.errno or 0
    kind = _CLASS_OF_ERRNO.get(number, IoError)
    text = f"{doing}: {error.strerror or error}"
    return kind(text, stage=stage, remedy=remedy, native=("errno", number) if number else None)
