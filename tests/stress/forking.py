"""Programs that fork_test.py runs, each in a process of its own: ``forking.py PROGRAM ARTIFACT SEED``.

Children leave as any Python program does, through the interpreter's own end: a lock or thread of the core that a fork
left behind would hold them there. A child that does not come back is killed by whoever runs the program.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import random
import re
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import coldsnap

# A blob many times the ring, so that slots are used again and again.
SMALL_RING = {"chunk_bytes": 64 << 10, "queue_depth": 2, "read_threads": 2}
BACKENDS = ("buffered", "direct", "auto", "python")
FAILED = 3


def content(nbytes: int) -> np.ndarray:
    """What the artifact's one tensor holds."""
    return np.random.default_rng(7).integers(0, 256, nbytes, np.uint8)


def check(what: str, holds: bool) -> None:
    """End the process with `FAILED` unless it holds; forked children have no test runner around them."""
    if not holds:
        print(f"process {os.getpid()}: {what}", file=sys.stderr, flush=True)
        os._exit(FAILED)


def restore(artifact: pathlib.Path, backend: str) -> None:
    """Open, restore into fresh memory, compare every byte."""
    with coldsnap.open(artifact) as opened:
        nbytes = opened["w"].nbytes
        destination = np.full(nbytes, 0x55, np.uint8)
        coldsnap.hydrate(opened, {"w": destination}, backend=backend, **SMALL_RING)
    check(f"wrong bytes by {backend}", np.array_equal(destination, content(nbytes)))


class Restoring:
    """A restore in another thread; leaving the block waits for it and insists that it ended well."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self._failure = failure

    def __enter__(self) -> Restoring:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.join()
        check(f"the restore in another thread failed: {self._failure!r}", self._failure is None)


def fork(child: Callable[[], None]) -> int:
    """Fork; the child runs ``child`` and ends as a program does. Returns its process id to the parent."""
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return pid


def wait_for(pid: int) -> None:
    """Wait for a child and insist that it ended well."""
    _, status = os.waitpid(pid, 0)
    check(f"child {pid} ended with status {status}", status == 0)


def unforkable() -> set[str]:
    """Mappings of this process that a child does not get: flag ``dc`` in the kernel's account."""
    found: set[str] = set()
    current = ""
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if head := re.match(r"([0-9a-f]+-[0-9a-f]+) ", line):
            current = head[1]
        elif line.startswith("VmFlags:") and "dc" in line.split():
            found.add(current)
    return found


def mapped(span: str) -> bool:
    """Whether any part of ``span`` is mapped in this process."""
    begin, end = (int(part, 16) for part in span.split("-"))
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split(" ", 1)[0].split("-"))
        if first < end and begin < last:
            return True
    return False


def used_then_forked(artifact: pathlib.Path, seed: int) -> None:
    """Restores, forks; child and parent restore again, at the same time."""
    for backend in BACKENDS:
        restore(artifact, backend)
        pid = fork(lambda backend=backend: restore(artifact, backend))
        restore(artifact, backend)
        wait_for(pid)


def used_then_forked_by_multiprocessing(artifact: pathlib.Path, seed: int) -> None:
    """The same through multiprocessing, as data loaders do it."""
    context = multiprocessing.get_context("fork")
    for backend in BACKENDS:
        restore(artifact, backend)
        children = [context.Process(target=restore, args=(artifact, backend)) for _ in range(2)]
        for child in children:
            child.start()
        restore(artifact, backend)
        for child in children:
            child.join()
            check(f"child ended with {child.exitcode}", child.exitcode == 0)


def ring_stays_here(artifact: pathlib.Path, seed: int) -> None:
    """Forks while a restore of another thread is held in its callback: its ring is not the child's, its claim neither."""
    nbytes = coldsnap.open(artifact)["w"].nbytes
    destination = np.full(nbytes, 0x55, np.uint8)
    inside, go_on = threading.Event(), threading.Event()

    def progress(done: int, total: int) -> None:
        inside.set()
        go_on.wait()

    def held() -> None:
        try:
            coldsnap.hydrate(artifact, {"w": destination}, backend="buffered", progress=progress, **SMALL_RING)
        finally:
            inside.set()

    def child() -> None:
        for span in ring:
            check(f"the ring at {span} is mapped in the child too", not mapped(span))
        # Memory of its own at the same address: the restore that claimed it runs in the parent.
        coldsnap.hydrate(artifact, {"w": destination}, backend="buffered", **SMALL_RING)
        check("wrong bytes in the child", np.array_equal(destination, content(nbytes)))

    before = unforkable()
    with Restoring(held):
        inside.wait()
        ring = unforkable() - before
        check("no mapping of the running restore is kept from children", bool(ring))
        wait_for(fork(child))
        go_on.set()
    check("wrong bytes in the parent", np.array_equal(destination, content(nbytes)))


def forked_while_restoring(artifact: pathlib.Path, seed: int) -> None:
    """Forks at random moments of a restore in another thread; every child restores and ends."""
    moments = random.Random(seed)
    restore(artifact, BACKENDS[0])  # every import is done: a fork in the middle of one blocks the module for the child
    for round_ in range(24):
        backend = BACKENDS[round_ % len(BACKENDS)]
        with Restoring(lambda backend=backend: restore(artifact, backend)):
            time.sleep(moments.uniform(0, 0.03))
            pids = [fork(lambda: None), fork(lambda backend=backend: restore(artifact, backend))]
            for pid in pids:
                wait_for(pid)


PROGRAMS = {
    program.__name__: program
    for program in (used_then_forked, used_then_forked_by_multiprocessing, ring_stays_here, forked_while_restoring)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](pathlib.Path(sys.argv[2]), int(sys.argv[3]))
