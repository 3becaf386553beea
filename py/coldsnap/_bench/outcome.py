"""What comes of a calibration's samples: results.json, the profile, tables, recommendations, the comparison, a page."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coldsnap import errors
from coldsnap._bench import best, cases, ceilings, compare, recommend, report, results
from coldsnap._bench.ceilings import Ceiling
from coldsnap._bench.measurement import Plan
from coldsnap._bench.options import CACHES, OPERATIONS, Request
from coldsnap._bench.session import Session

_PAGE = "coldsnap._bench.html"  # draws with matplotlib, which comes with the wheel's extra `report`
_HOW_TO_GET_IT = "pip install 'coldsnap[report]'"


def earlier_results(request: Request) -> dict[str, Any] | None:
    """Read what --compare names.

    Raises:
        RequestInvalidError: It is no results.json.
    """
    return None if request.compare is None else results.read_json(request.compare, "compare with earlier results")


def compared(request: Request, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Compare two results files; nothing is measured.

    Raises:
        RequestInvalidError: One is no results.json, or they are of other data.
        PolicyRefusedError: A case is slower, and that was to be a failure.
    """
    assert earlier is not None and request.measured is not None  # the flags saw to it
    later = results.read_json(request.measured, "compare two results")
    extents = later.get("request", {}).get("extents")
    compare.require_comparable(earlier, later["payload_bytes"], extents, str(request.compare))
    later["comparison"] = compare.compare(earlier, later)
    report.print_comparison(later["comparison"], str(request.compare))
    if request.fail_if_slower:
        _require_none_slower(later["comparison"], str(request.compare))
    return later


def finish(plan: Plan, session: Session, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Write results.json and the profile, and print everything; give the document.

    Raises:
        PolicyRefusedError: A case is slower, and that was to be a failure. All of it was written.
    """
    request = plan.request
    document = session.document(complete=True)
    document["recommendation"] = recommend.recommendations(document)
    if earlier is not None:
        document["comparison"] = compare.compare(earlier, document)
    written = session.write(document)
    print()
    report.print_tables(session.ceilings, document)
    print()
    for note in dict.fromkeys([*session.notes, *_notes(session, document), *_profile(plan, document)]):
        print(f"note: {note}")
    _draw(request, document, written.parent)
    if earlier is not None:
        report.print_comparison(document["comparison"], str(request.compare))
    print(f"every restore was verified, and compared with its source; took {session.budget.elapsed_s:.1f} s")
    report.print_best(document, written)
    if request.fail_if_slower:
        _require_none_slower(document["comparison"], str(request.compare))
    return document


def require_report(request: Request) -> None:
    """Refuse --report where no page can be drawn, before anything is measured.

    Raises:
        RouteUnavailableError: What is missing, and how to get it.
    """
    missing = _missing_for_a_page()
    if request.report and missing:
        raise errors.RouteUnavailableError(
            f"draw the page of --report: {missing} is not installed", remedy=_HOW_TO_GET_IT
        )


def _missing_for_a_page() -> str | None:
    return next((name for name in (_PAGE, "matplotlib") if importlib.util.find_spec(name) is None), None)


def _draw(request: Request, document: dict[str, Any], folder: Path) -> None:
    """Draw the page, unless --noreport is given; where nobody asked for it, its failure is a line and no more.

    Raises:
        RequestInvalidError, IoError, NoSpaceError: What --report asked for can't be drawn or written.
    """
    if request.report is False:
        return
    missing = _missing_for_a_page()
    if missing:
        print(f"no page with plots: {missing} is not installed; {_HOW_TO_GET_IT}")
        return
    try:
        page, *plots = importlib.import_module(_PAGE).write(document, folder)
    except errors.Error as error:
        if request.report:
            raise
        print(f"no page with plots: {error}")
    else:
        print(f"page: {page}, and {len(plots)} plots beside it")


def _require_none_slower(rows: Sequence[dict[str, Any]], name: str) -> None:
    slower = [row for row in rows if row["verdict"] == "slower"]
    if slower:
        worst = min(slower, key=lambda row: row["ratio"])
        raise errors.PolicyRefusedError(
            f"compare with {name}: {len(slower)} of {len(rows)} cases are slower, {worst['case']} most: "
            f"{worst['ratio']:.2f} times its rate"
        )


def _profile(plan: Plan, document: dict[str, Any]) -> list[str]:
    request = plan.request
    whole = request.caches == set(CACHES) and request.operations == set(OPERATIONS)
    if plan.asked or request.extents or not whole:
        return ["no profile was written: it holds what is best, and a setting, a shape or a part was asked for"]
    return best.write_profile(plan.parent, plan.device, document, document["commit"])


def _notes(session: Session, document: dict[str, Any]) -> list[str]:
    """Say what is missing from the tables, and what could not be proved."""
    found, measured = session.ceilings, list(session.cases.values())
    notes = [f"{each.family.replace('_', ' ')} is not possible here: {each.refused}" for each in found if each.refused]
    notes += [f"{each.operation} by {each.route} failed: {each.refused}" for each in measured if each.refused]
    for each in (case for case in measured if case.cache == "mixed"):
        low, high = f"{min(each.residency_before):.0%}", f"{max(each.residency_before):.0%}"
        share = low if low == high else f"{low} to {high}"
        notes.append(f"{each.route}, wanted {each.wanted_cache}: {share} was in the page cache, so it is mixed")
    if any(case.route == "direct" and case.cache == "warm" and case.samples_s for case in measured):
        notes.append("direct warm: all of the blob was in the page cache; a direct read from a drive passes it by")
    counts = {len(each.samples) for each in found if each.samples} | {len(each.samples_s) for each in measured}
    if 0 < min(counts - {0}, default=0) < session.samples.stop:
        notes.append(f"some numbers have {min(counts - {0})} samples, to end in time; --samples=N takes all of them")
    if session.left_out:
        names = list(dict.fromkeys(session.left_out))
        some = f"{', '.join(names[:4])}{' ...' if names[4:] else ''}"
        notes.append(f"no time for all samples of {len(session.left_out)}: {some}; give more --minutes")
    if document["sittings"] > 1:
        notes.append(f"the samples are from {document['sittings']} runs")
    return [*notes, *_hashing_note(found, measured)]


def _hashing_note(found: Sequence[Ceiling], measured: Sequence[cases.Measured]) -> list[str]:
    """Compare verified direct restores with direct reads that are hashed by code which is not ours."""
    probe = ceilings.best(list(found), ceilings.DIRECT_READ_HASHED)
    ours = [each for each in measured if (each.operation, each.route, each.cache) == ("hydrate", "direct", "cold")]
    rates = [
        each.nbytes / each.median_s
        for each in ours
        if each.samples_s and each.digest == cases.ALL_DIGESTS and each.found_place == "host"
    ]
    if probe is None or not rates:
        return []
    share = max(rates) / probe.median
    return [
        f"direct, cold, crc32+sha256 on the host: {share:.0%} of what Python's own hashes reach behind direct reads"
    ]
