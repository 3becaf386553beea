"""``coldsnap request FILE``: one request in, one receipt out, whatever happens.

The receipt is the one line that standard output gets. To keep it so, standard output is moved aside before anything
runs, and what anybody prints goes to standard error. Signals end an operation, never the receipt (docs/requests.md).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from coldsnap import errors, metrics, operations, receipt_log, receipts, request_schema
from coldsnap._bench import workspace
from coldsnap.receipts import Receipt

_STDOUT, _STDERR = 1, 2
_CANT_ANSWER = 5
# Those that say what is there change nothing worth remembering.
_KEPT = ("verify", "calibrate", "capture", "hydrate", "qualify")
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EBADF)


class Answer(NamedTuple):
    """What a request comes to: ``line`` is what is printed, ``metrics`` the file that gets metrics, if one was named."""

    receipt: Receipt
    line: str
    exit_code: int
    metrics: str | None = None


class Events:
    """One JSON object a line on a descriptor: progress and warnings.

    A reader that is slow misses events, and one that is gone gets no more: neither holds up the operation.

    Args:
        fd: Where they go.
        operation: What their ``operation`` says.
    """

    def __init__(self, fd: int, operation: str = "request") -> None:
        self._fd: int | None = fd
        self._begin = time.monotonic()
        self.operation = operation

    def progress(self, done: int, total: int) -> None:
        elapsed_s = round(time.monotonic() - self._begin, 3)
        self._write({"event": "progress", "done_bytes": done, "total_bytes": total, "elapsed_s": elapsed_s})

    def warning(self, message: str) -> None:
        self._write({"event": "warning", "message": message[:600]})  # so that a line fits a pipe at once

    def _write(self, event: dict[str, Any]) -> None:
        if self._fd is None:
            return
        line = json.dumps({"format": receipts.FORMAT, "operation": self.operation, **event}, ensure_ascii=False)
        try:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if poll.poll(0):
                os.write(self._fd, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            self._fd = None


def main(argv: Sequence[str]) -> int:
    """Answer one request.

    Args:
        argv: The arguments after ``request``.
    Returns:
        The exit code: 0, or that of the error (docs/errors.md); 5 where the receipt can't be written; 128 and the
        number of the signal that interrupted it.
    """
    if {"--help", "-h"} & set(argv):
        print(_parser().format_help(), end="")
        return 0
    try:
        out = _moved_aside()
    except OSError as cause:
        return _say(f"open standard output, for the receipt: {cause.strerror}; nothing was done", _CANT_ANSWER)
    try:
        with contextlib.redirect_stdout(sys.stderr), workspace.signals_raise():
            answer = _answer(argv)
            written = _write_all(out, answer.line)
            if answer.receipt.operation in _KEPT:
                _keep(answer)
            told = _tell_metrics(answer)
    finally:
        _put_back(out)
    code = answer.exit_code or told
    if not written:
        code = _say("write the receipt to standard output: nobody reads it", code or _CANT_ANSWER)
    return workspace.leave(code)


def answer_to(data: bytes, events: Events) -> Answer:
    """Do what the request in ``data`` asks.

    Raises:
        Whatever the operation raises; what is ours has ``receipt``.
    """
    request = request_schema.parse(data)
    events.operation = request.operation
    outcome = operations.run(request, events.progress)
    return _answer_of(outcome.receipt, outcome.report, 0)


def failed(failure: BaseException) -> Answer:
    """The answer of a request that ended with an exception, whichever it is."""
    receipt = getattr(failure, "receipt", None)
    if not isinstance(receipt, Receipt):
        receipt = receipts.Account("request").receipt(failure)
    if isinstance(failure, MemoryError) and not isinstance(failure, errors.Error):
        failure = errors.OutOfMemoryError(f"{receipt.operation}: the interpreter found no memory")
        receipt = dataclasses.replace(receipt, error=receipts.error_entry(failure))
    if isinstance(failure, errors.Error | workspace.Interrupted):
        return _answer_of(receipt, None, failure.exit_code)
    interrupted = isinstance(failure, KeyboardInterrupt)
    return _answer_of(receipt, None, errors.Cancelled.exit_code if interrupted else errors.InternalError.exit_code)


def _answer_of(receipt: Receipt, report: dict[str, Any] | None, exit_code: int) -> Answer:
    document = receipt.as_dict() | {"report": report}
    line = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A path of the machine that is no UTF-8 stands in Python's strings as halves of surrogate pairs.
    return Answer(receipt, line.encode("utf-8", "replace").decode(), exit_code)


def _answer(argv: Sequence[str]) -> Answer:
    answer: Answer | None = None
    path: str | None = None
    debug = "--debug" in argv
    try:
        flags = _parser().parse_args(argv)
        metrics.require_place(flags.metrics)
        path = flags.metrics
        events = Events(_events_fd(flags.progress_fd))
        with _warnings_to(events):
            answer = answer_to(_read(flags.file), events)
        _ignore_signals()
    except BaseException as failure:
        _ignore_signals()
        # A signal that came behind the operation changes nothing of what it did.
        answer = answer or failed(failure)
        if isinstance(failure, workspace.Interrupted):
            workspace.remove_folders()
        if debug:
            traceback.print_exception(failure, file=sys.stderr)
    return answer._replace(metrics=path)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.RequestInvalidError(
            f"read the command line of coldsnap request: {message}", remedy="see coldsnap request --help"
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="coldsnap request",
        description="Answer one JSON request by one JSON receipt, on one line. `coldsnap schema` prints the rules.",
        epilog="""example:  echo '{"format": 1, "operation": "status"}' | coldsnap request -""",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="the request; - reads it from standard input")
    parser.add_argument("--progress-fd", type=int, metavar="N", help="write events there, not on standard error")
    parser.add_argument("--metrics", metavar="FILE", help="then write OpenMetrics text of the last receipts there")
    parser.add_argument("--debug", action="store_true", help="print the traceback of a failure on standard error")
    return parser


def _events_fd(chosen: int | None) -> int:
    fd = _STDERR if chosen is None else chosen
    try:
        if fd == _STDOUT:
            raise OSError(errno.EINVAL, "standard output has the receipt")
        if fd < 0 or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "it is not open for writing")
    except (OSError, OverflowError) as cause:
        why = getattr(cause, "strerror", None) or str(cause)
        raise errors.RequestInvalidError(
            f"write events to --progress-fd={fd}: {why}", remedy="give a descriptor that is open for writing, not 1"
        ) from cause
    return fd


def _read(path: str) -> bytes:
    """At most one byte more than a request may have."""
    try:
        with open(0 if path == "-" else path, "rb", buffering=0, closefd=path != "-") as file:
            found = bytearray()
            while piece := file.read(request_schema.MAX_BYTES + 1 - len(found)):
                found += piece
            return bytes(found)
    except (OSError, ValueError) as cause:
        doing = f"read the request from {path}"
        if isinstance(cause, OSError) and cause.errno not in _NO_FILE:
            raise errors.from_errno(cause, doing) from cause
        why = getattr(cause, "strerror", None) or str(cause)
        raise errors.RequestInvalidError(f"{doing}: {why}", remedy="name a file with one request, or -") from cause


@contextlib.contextmanager
def _warnings_to(events: Events) -> Iterator[None]:
    def show(message: Warning | str, *_: Any) -> None:
        events.warning(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _ignore_signals() -> None:
    """Let nothing come between the end of an operation and its receipt; `workspace.signals_raise` puts back what was."""
    with contextlib.suppress(ValueError):  # another thread than the main one gets no signals
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)


def _moved_aside() -> int:
    """A descriptor for the receipt; standard output is standard error from here on."""
    if sys.stdout is not None:
        sys.stdout.flush()
    out = fcntl.fcntl(_STDOUT, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    try:
        os.fstat(_STDERR)
    except OSError:  # there is none: keep its number from the next file that is opened
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR)
        if nowhere != _STDERR:
            os.close(nowhere)
    os.dup2(_STDERR, _STDOUT)
    return out


def _put_back(out: int) -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    os.dup2(out, _STDOUT)
    os.close(out)


def _write_all(fd: int, line: str) -> bool:
    rest = memoryview(line.encode() + b"\n")
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        return False
    return True


def _keep(answer: Answer) -> None:
    try:
        receipt_log.keep(answer.line, os.environ)
    except errors.Error as failure:
        _say(f"keep the receipt for coldsnap request status: {failure}", 0)


def _tell_metrics(answer: Answer) -> int:
    """Write the metrics, if a file was named for them; the exit code where that fails."""
    if answer.metrics is None:
        return 0
    try:
        metrics.write(answer.metrics, metrics.text(os.environ, [answer.receipt.as_dict()]))
    except errors.Error as failure:
        return _say(f"write metrics to {answer.metrics}: {failure}", failure.exit_code)
    return 0


def _say(message: str, code: int) -> int:
    """Say one line on standard error; give back the exit code."""
    with contextlib.suppress(OSError, AttributeError):
        print(f"coldsnap request: {message}", file=sys.stderr, flush=True)
    return code
