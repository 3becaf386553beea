"""Reports that people read: one page of HTML from a results.json, and each of its plots as PNG.

`page` builds pages from plain data, `plots` and `spans` draw, `sections` knows results.json. matplotlib is imported when
the first plot is drawn, and comes with ``coldsnap[report]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap._bench.html import page, sections


def write(results: Mapping[str, Any], folder: Path, trace: Any = None) -> list[Path]:
    """Write ``report.html`` and ``plots/*.png`` of a results.json.

    Args:
        results: The document.
        folder: Made if it is missing.
        trace: Of ``coldsnap calibrate --trace=FILE``, as read from its JSON; without it, ``results["trace"]`` if there.
    Returns:
        The files, the page first.
    Raises:
        RequestInvalidError: The document or the trace is none, or matplotlib is not installed; nothing was written.
        IoError, NoSpaceError: A file can't be written.
    """
    trace = results.get("trace") if trace is None else trace
    try:
        shown = sections.of_results(results, trace)
        documents = {"results.json": json.dumps(results, allow_nan=False)}
        if trace is not None:
            documents["trace.json"] = json.dumps(trace, allow_nan=False)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, errors.Error):
            raise
        raise errors.RequestInvalidError(
            f"draw a report: the document is no results.json ({type(error).__name__}: {error})",
            remedy="give one that coldsnap calibrate or //bench:peers has written",
        ) from error
    return page.write(folder, _title(results), shown, documents)


def _title(results: Mapping[str, Any]) -> str:
    gpu = results["machine"]["gpu"]
    device = gpu["name"] if gpu else "host memory"
    what = "Loaders side by side" if "loaders" in results else "Calibration"
    return f"{what}: {device}, {results['machine']['cores']} cores"
