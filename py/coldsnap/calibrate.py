"""``coldsnap calibrate`` and ``bazel run //bench:calibrate``: which route, chunk and depth are right on this machine.

Refusals come first, before anything is written (`prepare`); then it measures (`_bench.measurement`), and last it says
what came out. The blob's folder is gone at the end, whichever end that is (`_bench.workspace`); results.json is there
from the first case on, marked as incomplete until all is measured (`_bench.session`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap import errors, settings, state
from coldsnap._bench import workspace
from coldsnap._bench.options import Request, commit_of, parse_flags, refuse
from coldsnap._bench.sizes import MIB, format_size

if TYPE_CHECKING:
    from coldsnap._bench.measurement import Plan

__all__ = ["Request", "choose_device", "commit_of", "main", "parse_flags", "require_device_memory", "run"]


def main(argv: Sequence[str]) -> int:
    """Calibrate.

    Args:
        argv: The program's name, then the flags.
    Returns:
        The exit code: 0 done; 2 a flag is wrong or the machine too small, nothing was written; 3 a case is slower, and
        --fail_if_slower was given; 4 a restore gave wrong bytes; 5 the machine failed; 130 or 143 interrupted. Failures
        are one sentence on stderr.
    """
    with workspace.signals_raise():
        try:
            request = parse_flags(argv)
            if request is not None:
                run(request)
            sys.stdout.flush()
            return 0
        except errors.Error as error:
            return workspace.leave(_fail(str(error), error.exit_code))
        except workspace.Interrupted as error:
            workspace.remove_folders()
            return workspace.leave(_fail(f"{error}; the blob is removed, {error.kept}", error.exit_code))
        except BrokenPipeError:
            # Nobody reads our output any more; without this the interpreter would complain about it once again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _fail("write to standard output: its reader has closed it", 5)


def run(request: Request) -> dict[str, Any]:
    """Run the whole calibration and print its tables; raises before anything is written if it cannot end well.

    Returns:
        What results.json has.
    Raises:
        RequestInvalidError: It can't be done as asked here. Nothing was written.
        PolicyRefusedError: A case is slower than in the results to compare with, and that was to be a failure.
        DataLossError: A restore or a capture gave wrong bytes.
        IoError, NoSpaceError, CudaError, OutOfMemoryError: The machine failed.
    """
    # Only now: numpy, rich and the native module take time that neither --help nor a wrong flag should cost.
    from coldsnap._bench import measurement, outcome

    earlier = outcome.earlier_results(request)
    if request.measured is not None:
        return outcome.compared(request, earlier)
    outcome.require_report(request)
    plan = prepare(request, earlier)
    session = measurement.session_of(plan)
    print("\n".join(_head(plan)), flush=True)
    try:
        measurement.measure(plan, session)
        workspace.go_on()
        return outcome.finish(plan, session, earlier)
    except workspace.Interrupted as error:
        workspace.remove_folders()
        error.kept = session.kept()
        raise


def prepare(request: Request, earlier: dict[str, Any] | None) -> Plan:
    """Check what was asked for against this machine, and decide what was left to it.

    Raises:
        RequestInvalidError: It can't be done; the message has the numbers. Nothing was allocated or written.
    """
    from coldsnap import _native
    from coldsnap._bench import arena, compare, host, measurement

    if request.nbytes < arena.MIN_BYTES:
        refuse(
            f"write a blob of {request.nbytes} bytes: too few for its {len(arena.SMALL_BYTES)} small extents and "
            f"{len(arena.LARGE_SHARES)} large ones",
            f"give at least --bytes={arena.MIN_BYTES}",
        )
    if earlier is not None:
        compare.require_comparable(earlier, request.nbytes, request.extents, str(request.compare))
    device, first_line = choose_device(request.device)
    limits = _native.limits()
    fitted, reasons = settings.fit_ring(request.hydration, limits)
    output = _checked_output(request.output)
    parent = _checked_folder(request.path) if request.path else workspace.default_parent()
    plan = measurement.plan_of(request, device, fitted, settings.default_read_threads(limits), parent, output)
    plan.first_line, plan.earlier_drive = first_line, compare.drive_of(earlier)
    plan.notes += [reason["detail"] for reason in reasons]
    host.require_space(parent, request.nbytes, plan.copies)
    host.require_memory(request.nbytes, plan.setting.chunk_bytes * plan.setting.queue_depth, on_host=device == "host")
    require_device_memory(device, arena.arena_bytes(plan.pieces))
    return plan


def choose_device(asked: str) -> tuple[str, str]:
    """Decide where restores go, and word the first line.

    Raises:
        RequestInvalidError: The CUDA device that was asked for is not there; the message has the driver's reason.
    """
    from coldsnap import _native

    if asked == "host":
        return "host", "measuring host memory (asked for by --device=host)"
    count, reason = _native.cuda_devices()
    if asked == "auto":
        if count == 0:
            return "host", f"no GPU: measuring host memory ({reason})"
        asked = "cuda:0"
    if int(asked.partition(":")[2]) >= count:
        why = f"the last of {count} here is cuda:{count - 1}" if count else f"there is no CUDA device ({reason})"
        refuse(f"restore to device {asked}: {why}", "give --device=host to measure host memory")
    return asked, f"GPU: {_native.device_name(asked)} ({asked})"


def require_device_memory(device: str, nbytes: int) -> None:
    """Refuse a destination that the device's free memory cannot hold with 256 MiB to spare."""
    if device == "host":
        return
    from coldsnap import _native

    free = _native.device_free_bytes(device)
    if nbytes + 256 * MIB > free:
        refuse(
            f"restore to {device}: needs {nbytes + 256 * MIB} bytes of device memory, and {free} are free",
            "give a smaller --bytes or another --device",
        )


def _head(plan: Plan) -> list[str]:
    """What a person reads before the first sample."""
    request, setting = plan.request, plan.setting
    time = "" if request.minutes is None else f", at most {request.minutes:g} minutes"
    return [
        plan.first_line,
        f"blob: {format_size(request.nbytes)} of random bytes (seed {request.seed}), {len(plan.pieces)} extents",
        f"folder: {plan.parent} ({plan.file_system})",
        f"setting: chunk {format_size(setting.chunk_bytes)}, depth {setting.queue_depth}, {setting.threads} threads; "
        f"{request.samples.stop} samples each{time}",
    ]


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        what = "it is not a folder" if path.exists() else "it does not exist"
        refuse(f"write the blob into --path={path}: {what}", "give an existing folder on the drive to measure")
    if not os.access(path, os.W_OK | os.X_OK):
        refuse(f"write the blob into --path={path}: no right to write there", "give a folder of yours on that drive")
    return path


def _checked_output(path: Path | None) -> Path:
    """Choose the folder of results.json, and see early whether it can be written; nothing is made yet."""
    if path is None:
        path = state.state_dir(os.environ) / "calibration"
    standing = path
    while not standing.exists() and standing != standing.parent:
        standing = standing.parent
    if not standing.is_dir():
        refuse(f"write results.json into {path}: {standing} is a file", "give another --output")
    if not os.access(standing, os.W_OK | os.X_OK):
        refuse(f"write results.json into {path}: no right to write in {standing}", "give another --output")
    return path


def _fail(message: str, exit_code: int) -> int:
    """Say in one line on stderr why this ends; give back the exit code."""
    with contextlib.suppress(OSError):
        print(f"coldsnap calibrate: {message}", file=sys.stderr, flush=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
