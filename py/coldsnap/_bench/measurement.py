"""What a calibration measures, and in which order.

Memory first, while the source is in memory and nothing else is; then the blobs are written, and each route proves that
it restores them byte for byte. Cold reads and cold restores come in the same rounds, warm ones after them, captures with
raw writes, so that each ratio compares numbers of the same minutes. What is left of --minutes goes into a search.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap import _native, errors
from coldsnap._bench import (
    arena,
    cache,
    captures,
    cases,
    ceilings,
    cuda,
    host,
    machine,
    results,
    rounds,
    search,
    workspace,
)
from coldsnap._bench.arena import DeviceArena, HostArena, Piece
from coldsnap._bench.cases import Setting
from coldsnap._bench.options import Request
from coldsnap._bench.session import NAME, Session, require_same
from coldsnap._bench.sizes import KIB, MIB
from coldsnap.settings import Setting as Chosen

# The share of the time after which a part is content with its least number of samples, so that the default ends within
# a minute. A part that began late still takes the least.
_SHARES = {"memory": 0.10, "cold": 0.40, "warm": 0.52, "half": 0.60, "capture": 0.72, "small": 0.75, "besides": 0.80}
# A tuning of a layer, a bias, a norm: 50,000 of them are more than any model has; a smaller blob has as many as fit.
_SMALL_BYTES = 16 * KIB
_MOST_SMALL = 50_000
_SMALL_SHARE = 8  # of the main blob's bytes, one in so many
_SEARCH_SHARE = 0.7  # of a goal's time; the rest is for the finals
_USUAL_MINUTES = 0.9
_USUAL_BYTES = 512 * MIB
_COMPARING = 1.5  # its least number of samples is larger
_MOST_TRACE = 8 * MIB
_SPARE_BYTES = 256 * MIB  # random bytes for raw writes, where the source itself is on no host memory any more


@dataclass
class Plan:
    """A request as this machine can do it: `setting` is a restore's by itself, `asked` whether somebody chose it."""

    request: Request
    device: str
    setting: Setting
    pinned_max_bytes: int
    asked: bool
    cores: int
    ladder: list[int]
    pieces: list[Piece]
    small: list[Piece]
    parent: Path
    file_system: str
    output: Path
    first_line: str = ""
    earlier_drive: Setting | None = None  # of results to compare with: the same settings are measured again
    notes: list[str] = field(default_factory=list)

    @property
    def copies(self) -> float:
        """How many times the payload is on the drive at most: the blob, the small one's share, one capture."""
        return 1 + (1 / _SMALL_SHARE if self.small else 0) + ("capture" in self.request.operations)

    @property
    def from_drive(self) -> bool:
        """Whether anything is wanted that reads from the drive."""
        return "hydrate" in self.request.operations and bool(self.request.caches & {"cold", "half"})


@dataclass
class Subject:
    """What is measured: the blobs with their memory, and the routes that restore them."""

    restorer: cases.Restorer
    small: cases.Restorer | None
    capturer: captures.Capturer
    spare: HostArena
    routes: list[str]


def plan_of(request: Request, device: str, fitted: dict[str, Chosen], cores: int, parent: Path, output: Path) -> Plan:
    """Decide what the request leaves to the machine."""
    chosen = {name: each.value for name, each in fitted.items()}
    pieces = arena.equal_pieces(request.nbytes, request.extents) if request.extents else arena.pieces_of(request.nbytes)
    small_count = min(_MOST_SMALL, request.nbytes // _SMALL_SHARE // _SMALL_BYTES)
    wanted = not request.extents and "warm" in request.caches and "hydrate" in request.operations
    plan = Plan(
        request=request,
        device=device,
        setting=Setting(chosen["chunk_bytes"], chosen["queue_depth"], chosen["read_threads"]),
        pinned_max_bytes=chosen["pinned_max_bytes"],
        asked=any(fitted[name].chosen for name in ("chunk_bytes", "queue_depth", "read_threads")),
        cores=cores,
        ladder=ceilings.thread_ladder(cores),
        pieces=pieces,
        small=arena.equal_pieces(small_count * _SMALL_BYTES, small_count) if wanted else [],
        parent=parent,
        file_system=host.mount_of(parent).kind,
        output=output,
    )
    if plan.file_system in host.MEMORY_FILE_SYSTEMS:
        kind = plan.file_system
        plan.notes.append(f"{kind} keeps its files in memory: nothing here is cold, such samples are marked mixed")
    return plan


def session_of(plan: Plan) -> Session:
    """Begin the account, or go on with an interrupted one.

    Raises:
        RequestInvalidError: There is none to go on with, or it is another one; the message has the difference.
    """
    request = plan.request
    about = {
        "commit": request.commit or machine.commit_or_version(),
        "machine": machine.machine_record(plan.device, plan.parent),
        "seed": request.seed,
        "payload_bytes": request.nbytes,
        "request": {
            "extents": request.extents,
            "operations": sorted(request.operations),
            "caches": sorted(request.caches),
            "sweep": request.sweep,
            "minutes": request.minutes,
            "least": request.samples.start,
            "most": request.samples.stop,
            "setting": _shape(plan.setting),
            "drive": _shape(cases.drive_default(plan.setting)),
            "asked": plan.asked,
        },
    }
    earlier = None
    if request.resume:
        earlier = results.read_json(plan.output / NAME, "go on with a calibration")
        require_same(earlier, about, plan.output / NAME)
    mode = 0o777 if request.output else 0o700
    budget = rounds.Budget(_minutes(request))
    return Session(about, request.samples, budget, plan.output, mode, _parts(plan), earlier, notes=list(plan.notes))


def _minutes(request: Request) -> float | None:
    """The time that a calibration may take: under a minute for a blob of the usual size, unless samples were asked for."""
    if request.minutes is not None or request.asked_samples or request.sweep:
        return request.minutes
    usual = _USUAL_MINUTES * max(1.0, request.nbytes / _USUAL_BYTES)
    return usual if request.compare is None else usual * _COMPARING


def _parts(plan: Plan) -> list[str]:
    """The parts of a calibration, in the order in which they are measured."""
    request = plan.request
    restores = [state for state in ("cold", "warm", "half") if state in request.caches]
    parts = ["memory", *(restores if "hydrate" in request.operations else [])]
    parts += ["small"] if plan.small else []
    parts += ["capture"] if "capture" in request.operations else []
    last = ["sweep"] if request.sweep else ["search"] if request.minutes is not None else []
    return [*parts, "besides", *last]


def measure(plan: Plan, session: Session) -> None:
    """Measure all of it; the working folder is gone when this ends, however it ends.

    Raises:
        RequestInvalidError: The minutes were over before the first case.
        DataLossError: A restore or a capture gave wrong bytes.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(workspace.working_folder(plan.parent))
        source = HostArena(plan.pieces)
        source.fill(plan.request.seed, plan.cores)
        session.measure("memory", ceilings.copies_and_digests(source, plan.cores), [], _SHARES["memory"])
        subject = _subject(plan, session, stack, folder, source)
        del source
        drive = _drive_setting(plan, session, subject)
        session.ring = (
            plan.setting,
            [subject.restorer.make_ring(plan.setting) for _ in range(plan.request.samples.stop)],
        )
        _measure_restores(plan, session, subject, drive)
        _measure_captures(plan, session, subject, folder)
        _measure_besides(plan, session, subject, drive)
        if plan.request.sweep:
            grid = search.sweep(subject.restorer, _capturer(plan, subject), plan.ladder, plan.setting)
            session.measure_if_time(
                "sweep", [], _working(plan, subject, grid), 1.0 if session.budget.minutes else math.inf
            )
        elif plan.request.minutes is not None:
            _search(plan, session, subject)
        if plan.request.trace is not None:
            _trace(plan, session, subject, drive, plan.request.trace)
    if not any(each.samples_s for each in session.cases.values()):
        raise errors.RequestInvalidError(
            f"calibrate within {session.budget.minutes:g} minutes: {session.budget.elapsed_s:.1f} s were over before the "
            f"first case could be measured",
            remedy="give more --minutes or fewer --bytes",
        )


def _subject(plan: Plan, session: Session, stack: contextlib.ExitStack, folder: Path, source: HostArena) -> Subject:
    """Write the blobs, make the destination, and prove each route. The memory then holds the source's bytes again."""
    artifact, small = folder / "artifact", folder / "small"
    with rounds.progress(2 + len(cases.ROUTES)) as advance:
        advance("write the blobs")
        workspace.interruptible(lambda: captures.write_artifact(artifact, plan.pieces, source))
        if plan.small:
            workspace.interruptible(lambda: captures.write_artifact(small, plan.small, source))
        target: HostArena | DeviceArena = source
        spare = source
        if plan.device != "host":
            nbytes = arena.arena_bytes(plan.pieces)
            target = DeviceArena(stack.enter_context(cuda.DeviceMemory(plan.device, nbytes)))
            spare = HostArena(arena.pieces_of(min(plan.request.nbytes, _SPARE_BYTES)))
            spare.fill(plan.request.seed, plan.cores)

        def restorer_of(path: Path, pieces: list[Piece]) -> cases.Restorer:
            return cases.Restorer(path, pieces, target, plan.device, plan.pinned_max_bytes)

        many = restorer_of(small, plan.small) if plan.small else None
        if many is not None:
            # Small extents are other pieces of the same bytes; the main blob's restores put the rest back.
            advance("check small extents")
            _check(plan, target, many, plan.small, "buffered")
        main = restorer_of(artifact, plan.pieces)
        routes = []
        for route in cases.ROUTES:
            advance(f"check {route}")
            try:
                _check(plan, target, main, plan.pieces, route)
                routes.append(route)
            except errors.RouteUnavailableError as error:
                session.notes.append(f"{route} does not work here: {error}")
    where = (folder / "capture", artifact, plan.pieces, target, plan.device, plan.pinned_max_bytes)
    return Subject(main, many, captures.Capturer(*where), spare, routes)


def _check(
    plan: Plan, target: HostArena | DeviceArena, restorer: cases.Restorer, pieces: list[Piece], route: str
) -> None:
    """Restore into cleared memory and compare every byte with the source."""
    target.clear(plan.cores)
    restorer.run(route, cases.ALL_DIGESTS, plan.setting)
    arena.require_equal(target, pieces, plan.request.seed, route)


def _drive_setting(plan: Plan, session: Session, subject: Subject) -> Setting:
    """Choose chunk, depth and threads for reads from the drive: those asked for, those compared with, or the fastest."""
    if "direct" not in subject.routes or plan.asked or not plan.from_drive:
        return plan.setting
    if plan.earlier_drive is not None:
        return plan.earlier_drive
    settings = search.few_for_the_drive(plan.setting, plan.ladder)
    trials = [
        session.adopt(
            session.trials,
            cases.Case(subject.restorer, "direct", "cold", cases.ALL_DIGESTS, each, at_most=cases.TRIAL_BYTES),
        )
        for each in settings
    ]
    fastest = search.halve(trials, session.has)
    return plan.setting if fastest is None else fastest.setting


def _measure_restores(plan: Plan, session: Session, subject: Subject, drive: Setting) -> None:
    """Restores in each state of the page cache, with what bounds them."""
    restorer, ladder = subject.restorer, plan.ladder
    session.extra["drive"] = _shape(drive)
    cold = ceilings.cold_reads(restorer.blob, ladder) if plan.from_drive else []
    warm = ceilings.cached_reads(restorer.blob, ladder)
    warm += [] if plan.device == "host" else ceilings.pinned_copies(plan.device, plan.request.nbytes)
    listed: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
        "cold": (cold, cases.cold_cases(restorer, plan.setting, drive)),
        "warm": (warm, cases.warm_cases(restorer, plan.setting, drive)),
        "half": (
            # Nothing bounds them; where there was no cold part, the drive's ceilings are still to be known.
            [*([] if "cold" in plan.request.caches else cold), *ceilings.half_reads(restorer.blob, ladder)],
            cases.half_cases(restorer, plan.setting, drive),
        ),
    }
    if subject.small is not None:
        listed["small"] = ([], cases.small_cases(subject.small, plan.setting))
    for part, (bounds, found) in listed.items():
        if part in session.ahead:
            pace = ceilings.processors(subject.spare, plan.cores, part)
            session.measure(part, bounds, _working(plan, subject, found), _SHARES[part], pace)


def _measure_captures(plan: Plan, session: Session, subject: Subject, folder: Path) -> None:
    """Captures in the same rounds as raw writes, which bound them."""
    if "capture" in session.ahead:
        bounds = ceilings.direct_writes(folder, subject.spare, plan.request.nbytes, plan.ladder)
        pace = ceilings.processors(subject.spare, plan.cores, "capture")
        session.measure("capture", bounds, captures.capture_cases(subject.capturer), _SHARES["capture"], pace)


def _measure_besides(plan: Plan, session: Session, subject: Subject, drive: Setting) -> None:
    """What explains other numbers and decides nothing."""
    hashed = plan.from_drive and "direct" in subject.routes
    bounds = ceilings.hashed_reads(subject.restorer.blob, plan.ladder) if hashed else []
    found = [
        *cases.fewer_threads_cases(subject.restorer, plan.setting),
        *captures.buffered_cases(subject.capturer),
    ]
    session.measure_if_time("besides", bounds, _working(plan, subject, found), _SHARES["besides"])


def _working(plan: Plan, subject: Subject, found: Sequence[Any]) -> list[Any]:
    """Those cases that were asked for, by routes that work here."""
    working = {*subject.routes, "auto"}
    wanted = [each for each in found if each.operation in plan.request.operations]
    return [
        each
        for each in wanted
        if each.operation == "capture"
        or (
            each.route in working
            and each.wanted_cache in plan.request.caches
            # A direct read is bound by the drive, which is measured with the cold ones.
            and (each.route != "direct" or plan.from_drive)
        )
    ]


def _search(plan: Plan, session: Session, subject: Subject) -> None:
    """Look for better settings as long as there is time, then let each winner and the default meet in the same rounds."""
    goals = search.goals(subject.restorer, _capturer(plan, subject), plan.setting, plan.request.caches)
    goals = [goal for goal in goals if _working(plan, subject, [goal.trial(goal.base, None)])]
    for done, goal in enumerate(goals):
        share_s = session.budget.left_s / (len(goals) - done)
        with session.budget.within(_SEARCH_SHARE * share_s):
            best = search.descend(
                goal, plan.ladder, plan.pinned_max_bytes, lambda case: session.adopt(session.trials, case), session.has
            )
        with session.budget.within(share_s):
            session.meet(goal.name, [goal.trial(each, None) for each in dict.fromkeys((best, goal.base))])
    tried = len(session.trials)
    session.notes.append(f"the search tried {tried} settings; results.json has them under trials")
    session.ahead.remove("search")


def _capturer(plan: Plan, subject: Subject) -> captures.Capturer | None:
    return subject.capturer if "capture" in plan.request.operations else None


def _trace(plan: Plan, session: Session, subject: Subject, drive: Setting, path: Path) -> None:
    """Write what each thread does in a cold restore by ``direct`` and a warm one by ``buffered``, for results.json too.

    Raises:
        IoError: It can't be written.
    """
    trace, restorer = _native.Trace(), subject.restorer
    if "direct" in subject.routes:
        cache.make_cold(restorer.blob)
        restorer.run("direct", cases.ALL_DIGESTS, drive, trace=trace)
    cache.make_warm(restorer.blob)
    restorer.run("buffered", cases.ALL_DIGESTS, plan.setting, trace=trace)
    text = trace.to_json()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.from_errno(error, f"write the trace {path.name}", remedy="give another --trace") from error
    session.notes.append(f"{path.name} has a trace of both routes, for Perfetto")
    if len(text) <= _MOST_TRACE:
        session.extra["trace"] = json.loads(text)
    else:
        session.notes.append(f"results.json has no trace: {len(text)} bytes are more than a page can show")


def _shape(setting: Setting) -> dict[str, int]:
    return {key: getattr(setting, key) for key in cases.SHAPE}
