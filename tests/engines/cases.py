"""The cases: every kind of model and topology, and what a captured and a restored start of each have to show."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import re
import shutil

import coldsnap
from tests.engines import models
from tests.engines.harness import Answer, Place, Start

_SPEED = r"\d+\.\d [GM]iB in \d+\.\d\d s \(\S+ GB/s, route [a-z, _:]+\)"
_LINES = {
    "captured": rf"coldsnap: captured {_SPEED}; the next start restores$",
    "restored": rf"coldsnap: restored {_SPEED} verified crc32\+sha256$",
}
_STEPS = {
    "meta": ["decide", "build", "memory", "fill", "compare", "finish", "conclude"],
    "shape": ["decide", "build", "finish", "compare", "fill", "conclude"],
    "loaded": ["decide", "build", "compare", "fill", "finish", "conclude"],
}
_BARS = {"captured": [], "restored": ["100"]}


@dataclasses.dataclass(frozen=True)
class Case:
    """One model in one topology.

    Attributes:
        kind: A key of `models.KINDS`.
        strategy: How a restore builds the model, as the artifact has to say (see `here`).
        plain: As in `Start`.
        processes: As in `Start`.
        ranks: As in `Start`.
        image: As in `Start`.
    """

    kind: str
    strategy: str
    plain: bool = True
    processes: bool = False
    ranks: int = 1
    image: int = 0

    def start(self, model: pathlib.Path) -> Start:
        """A start without coldsnap."""
        return Start(model, plain=self.plain, processes=self.processes, ranks=self.ranks, image=self.image)


# Those that every change has to pass: each strategy, quantised weights, experts and two ranks in the time that there is.
SLICE = {
    "dense, as a CPU has it": Case("dense", "loaded", plain=False),
    "gptq": Case("gptq", "shape"),
    "moe, two ranks": Case("moe", "meta", ranks=2),
}
# The others; a release has to pass them, too. int8 is `refusal_test`'s, text alone from a model for images `images_test`'s.
MATRIX = {
    "dense": Case("dense", "meta"),
    "dense, processes": Case("dense", "meta", processes=True),
    "dense, as a CPU has it, processes": Case("dense", "loaded", plain=False, processes=True),
    "dense, two ranks": Case("dense", "meta", ranks=2),
    "dense, as a CPU has it, two ranks": Case("dense", "loaded", plain=False, ranks=2),
    "tied": Case("tied", "meta"),
    "tied, processes": Case("tied", "meta", processes=True),
    "tied, two ranks": Case("tied", "meta", ranks=2),
    "retie": Case("retie", "meta"),
    "untie": Case("untie", "meta"),
    "untie, as a CPU has it": Case("untie", "loaded", plain=False),
    "moe": Case("moe", "meta"),
    "moe, processes": Case("moe", "meta", processes=True),
    "moe, as a CPU has it": Case("moe", "loaded", plain=False),
    "gptq, processes": Case("gptq", "shape", processes=True),
    "gptq, two ranks": Case("gptq", "shape", ranks=2),
    "awq": Case("awq", "shape"),
    "awq, processes": Case("awq", "shape", processes=True),
    "awq, two ranks": Case("awq", "shape", ranks=2),
    "images, processes": Case("images", "meta", processes=True, image=1),
    "images, two ranks": Case("images", "meta", ranks=2, image=1),
    "images, as a CPU has it": Case("images", "loaded", plain=False, image=1),
}


@dataclasses.dataclass(frozen=True)
class Copies:
    """Copies of a store that was captured once, each with a state folder of its own: what one case breaks, no other sees.

    Attributes:
        folder: Where they are made, each under its name.
        store: What is copied.
    """

    folder: pathlib.Path
    store: pathlib.Path

    def start(
        self, name: str, start: Start, *, mode: str = "auto", artifact: pathlib.Path | None = None, **environment: str
    ) -> Start:
        """A start over the copy ``name``; another of the same name finds what the first left."""
        store = self.folder / name / "store"
        if not store.exists():
            shutil.copytree(self.store, store, symlinks=True)
        found = by_coldsnap(start, store, mode, COLDSNAP_STATE_DIR=str(self.folder / name / "state"), **environment)
        if artifact is not None:
            found = dataclasses.replace(found, extra={"coldsnap": {"mode": mode, "artifact": str(artifact)}})
        return found

    def artifact(self, name: str) -> pathlib.Path:
        """The only artifact of a copy."""
        (artifact,) = artifacts(self.folder / name / "store")
        return artifact

    def blob(self, name: str, shard: str = "shard-00-00-00") -> pathlib.Path:
        """The weights of a copy's only artifact, made writable."""
        blob = self.artifact(name) / shard / "weights.safetensors"
        blob.chmod(0o644)
        return blob


def by_coldsnap(start: Start, store: pathlib.Path, mode: str = "auto", **environment: str) -> Start:
    """The same start with ``--load-format coldsnap`` and a store of its own."""
    ours = {"mode": mode, "store": str(store)}
    environment = {**start.environment, **environment}
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


def here(strategy: str) -> str:
    """How this vLLM restores what 0.32 restores by ``strategy``.

    Before 0.30 none can finish a model whose weights are processed already, as `meta` does.
    """
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None, "vLLM is not installed"
    source = pathlib.Path(spec.origin).parent / "model_executor" / "utils.py"
    knows = "def weights_already_processed" in source.read_text(encoding="utf-8")
    return strategy if knows or strategy != "meta" else "shape"


def check(case: Case, folder: pathlib.Path) -> None:
    """A normal start, one that captures and one that restores give the same tokens and log-probabilities."""
    model = models.make(case.kind, folder / "model")
    store = folder / "store"
    start = case.start(model)
    place = Place(folder)
    normal, captured = place.start(start, by_coldsnap(start, store))
    (restored,) = place.start(by_coldsnap(start, store, mode="restore", VLLM_LOGGING_LEVEL="DEBUG"))

    assert normal.served, normal.log[-4000:]
    require(captured, normal, "captured", case.ranks)
    (artifact,) = artifacts(store)
    strategy = here(case.strategy)
    assert strategies(artifact) == [strategy] * case.ranks
    require(restored, normal, "restored", case.ranks)
    steps = [line.rpartition(": ")[2] for line in restored.lines("coldsnap: of artifact ")]
    assert [re.findall(r"([a-z]+) \d+\.\d\d s", line) for line in steps] == [_STEPS[strategy]] * case.ranks


def require(answer: Answer, normal: Answer, done: str, ranks: int = 1) -> None:
    """A start served what a normal one does, and says once that it ``captured`` or ``restored``; so do its receipts.

    A restore also shows a bar, to its end, as vLLM's own loaders do.
    """
    assert answer.served, answer.log[-4000:]
    assert answer.outputs == normal.outputs
    (line,) = answer.lines(f"coldsnap: {done} ")
    assert re.search(_LINES[done], line), line
    assert [bar.partition(":")[2].split("%")[0].strip() for bar in answer.bars("Restoring weights")][-1:] == _BARS[done]
    operation = {"captured": "capture", "restored": "hydrate"}[done]
    assert [(receipt["operation"], receipt["ok"]) for receipt in answer.receipts] == [(operation, True)] * ranks


def why_normal(answer: Answer) -> str:
    """Why a start did not restore, as its log says once."""
    assert not answer.lines("coldsnap: restored")
    (line,) = answer.lines("coldsnap: loading normally: ")
    return line.partition("normally: ")[2]
