"""Threads for raw probes: started together, stopped together when one fails or a signal comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Stopped = Callable[[], bool]


def run(count: int, work: Callable[[int, Stopped], None]) -> float:
    """Run ``work(index, stopped)`` in `count` threads and wait for all of them.

    Args:
        count: How many threads, 1 or more.
        work: Gets its index and a function to ask between steps: True means give up, nobody needs the result.
    Returns:
        Seconds from the moment that all threads stood ready until the last was done.
    Raises:
        BaseException: The first failure of any thread, or what interrupted the waiting; all threads have ended by then.
    """
    stop = threading.Event()
    failures: list[BaseException] = []
    ready = threading.Barrier(count + 1)
    # Before Python 3.13, `Thread.join` that a signal's exception interrupts calls the thread ended ever after, and one that
    # comes back from native code into an interpreter that is shutting down aborts the process.
    ended = [threading.Event() for _ in range(count)]

    def body(index: int) -> None:
        try:
            ready.wait()
            work(index, stop.is_set)
        except threading.BrokenBarrierError:
            pass  # the starting thread was interrupted
        except BaseException as error:  # raised again below, in the thread that waits
            failures.append(error)
            stop.set()
        finally:
            ended[index].set()

    workers = [threading.Thread(target=body, args=(index,), daemon=True) for index in range(count)]
    try:
        for worker in workers:
            worker.start()
        ready.wait()
        start = time.perf_counter()
        for each in ended:
            each.wait()
    except BaseException:
        stop.set()
        ready.abort()
        for worker, each in zip(workers, ended, strict=True):
            if worker.ident is not None:
                each.wait()
        raise
    if failures:
        raise failures[0]
    return time.perf_counter() - start
