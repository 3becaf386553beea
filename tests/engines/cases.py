"""What a captured and a restored start of one model have to show."""

from __future__ import annotations

import dataclasses
import pathlib

import coldsnap
from tests.engines import models
from tests.engines.harness import Answer, Place, Start


@dataclasses.dataclass(frozen=True)
class Case:
    """One model in one topology.

    Attributes:
        kind: A key of `models.KINDS`.
        strategy: How a restore builds the model, as the artifact has to say.
        plain: As in `Start`.
        processes: As in `Start`.
        ranks: As in `Start`.
    """

    kind: str
    strategy: str
    plain: bool = True
    processes: bool = False
    ranks: int = 1

    def start(self, model: pathlib.Path) -> Start:
        """A start without coldsnap."""
        return Start(model, plain=self.plain, processes=self.processes, ranks=self.ranks)


def by_coldsnap(start: Start, store: pathlib.Path, mode: str = "auto", **environment: str) -> Start:
    """The same start with ``--load-format coldsnap`` and a store of its own."""
    ours = {"mode": mode, "store": str(store)}
    return dataclasses.replace(start, load_format="coldsnap", extra={"coldsnap": ours}, environment=environment)


def artifacts(store: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the artifacts in a store."""
    return [path.parent for path in sorted(store.glob("*/*/artifact.json"))]


def strategies(artifact: pathlib.Path) -> list[str]:
    """How a restore builds the model, for each of the artifact's shards."""
    found = []
    for shard in sorted(artifact.glob("shard-*")):
        with coldsnap.open(artifact, shard=shard.name) as opened:
            found.append(opened.scalars["coldsnap.strategy"])
    return found


def flip(blob: pathlib.Path) -> None:
    """Change one bit in the middle of a file."""
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(blob.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def check(case: Case, folder: pathlib.Path) -> None:
    """A normal start, one that captures and one that restores give the same tokens and log-probabilities."""
    model = models.make(case.kind, folder / "model")
    store = folder / "store"
    start = case.start(model)
    place = Place(folder)
    normal, captured = place.start(start, by_coldsnap(start, store))
    (restored,) = place.start(by_coldsnap(start, store, mode="restore"))

    assert normal.served, normal.log[-4000:]
    require(captured, normal, "captured", case.ranks)
    (artifact,) = artifacts(store)
    assert strategies(artifact) == [case.strategy] * case.ranks
    require(restored, normal, "restored", case.ranks)


def require(answer: Answer, normal: Answer, done: str, ranks: int = 1) -> None:
    """A start served what a normal one does, and says once that it ``captured`` or ``restored``; so do its receipts."""
    assert answer.served, answer.log[-4000:]
    assert answer.outputs == normal.outputs
    assert len(answer.lines(f"coldsnap: {done} ")) == 1, answer.lines("coldsnap:")
    operation = {"captured": "capture", "restored": "hydrate"}[done]
    assert [(receipt["operation"], receipt["ok"]) for receipt in answer.receipts] == [(operation, True)] * ranks
