"""A model from an artifact, by the strategy that the artifact was captured for.

    meta     built without memory; given the captured storages; filled; finished from weights that are processed already
    shape    built and finished on values that mean nothing; filled
    loaded   built; filled with what the engine's loader had made of the checkpoint; finished

Bytes come before what reads them: `meta` and `loaded` fill before they finish. The model is walked once nothing but this
module touches it any more, and whatever is not as it was captured fails the restore.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.logger import init_logger
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from coldsnap import errors
from coldsnap.adapters import kinds, snapshot
from coldsnap.adapters.filling import Filling
from coldsnap.adapters.search import STRATEGY
from coldsnap.adapters.vllm import compat
from coldsnap.adapters.walker import Walked, walk
from coldsnap.artifact import Artifact
from coldsnap.receipts import Receipt

_log = init_logger("vllm.coldsnap")
_SHOWN = 5


@dataclass(frozen=True)
class Order:
    """What is to be built.

    Attributes:
        loader: The engine's own loader, which builds models.
        vllm_config: The engine's configuration.
        model_config: Of the model.
        prefix: As the loader got it.
        device: Where weights belong, with its index.
        progress: Told bytes done and in total.
    """

    loader: BaseModelLoader
    vllm_config: Any
    model_config: Any
    prefix: str
    device: torch.device
    progress: Callable[[int, int], object] | None = None

    def make(self) -> torch.nn.Module:
        return compat.make_model(self.loader, self.vllm_config, self.model_config, self.prefix)

    def finish(self, model: torch.nn.Module) -> None:
        compat.finalize(model, self.model_config, self.device)


class Steps:
    """How long the steps of a load that restores took, for a line of the log: what the engine does is among them."""

    def __init__(self) -> None:
        self._took: dict[str, float] = {}
        self._begin = time.monotonic()

    def end(self, name: str) -> None:
        """What was done since the last end was ``name``."""
        now = time.monotonic()
        self._took[name] = self._took.get(name, 0.0) + now - self._begin
        self._begin = now

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self._took.items())


def strategies() -> tuple[str, ...]:
    """The strategies that this version of the engine can restore by."""
    return ("meta", "shape", "loaded") if compat.knows_pre_processed() else ("shape", "loaded")


def restore(order: Order, artifact: Artifact, steps: Steps) -> tuple[torch.nn.Module, Receipt]:
    """Build the model that an artifact was captured of.

    Args:
        order: What is to be built.
        artifact: The opened artifact.
        steps: Get what this does; what was done before has ended there.
    Returns:
        The finished model, and the receipt of its bytes.
    Raises:
        LayoutError: The model that this engine builds is not the captured one; the first differences are named.
        As `coldsnap.hydrate` does; and whatever the engine raises. The model is not usable, and gone.
    """
    by = {"meta": _by_meta, "shape": _by_shape, "loaded": _by_loaded}[artifact.scalars[STRATEGY]]
    device = "host" if order.device.type == "cpu" else f"cuda:{order.device.index}"
    with Filling(artifact, device, order.progress) as filling:
        model = by(order, artifact, filling, steps)
        assert filling.receipt is not None
        steps.end("compare")
        if filling.ahead is not None:
            _log.debug("coldsnap: while the model was built: %s", filling.ahead.reason["detail"])
        elif filling.since_launch:
            _log.debug("coldsnap: while the model was built: a reader that began with the launch went on")
        return model, filling.receipt


def _by_meta(order: Order, artifact: Artifact, filling: Filling, steps: Steps) -> torch.nn.Module:
    with compat.building(order.model_config, "meta"):
        model = order.make()
    steps.end("build")
    with compat.finishing(order.model_config):
        with _no_collections():
            first = snapshot.materialise(model, artifact, order.device, stop=compat.stop, skip=compat.skip)
            compat.set_flags(model, artifact.scalars["coldsnap.scalars"])
        steps.end("memory")
        filling.fill(first, partial=True)
        steps.end("fill")
        before = _Fixed(first)
        steps.end("compare")
        with compat.keeping_host_scales(model), compat.pre_processed():
            order.finish(model)
        steps.end("finish")
    model.eval()
    with _no_collections():
        finished = look_at(model)
        before.require(finished)
        # What finishing made anew, inside kernels say, gets its bytes as well.
        rest = {path: tensor for path, tensor in snapshot.destinations(finished).items() if path not in first}
        if rest.keys() & set(artifact):
            steps.end("compare")
            filling.fill({path: tensor for path, tensor in rest.items() if path in artifact}, partial=True)
            steps.end("refill")
        _require_none(snapshot.differences(_with_values(model, finished, artifact), artifact), artifact)
    return model


def _by_shape(order: Order, artifact: Artifact, filling: Filling, steps: Steps) -> torch.nn.Module:
    with compat.building(order.model_config, order.device):
        model = order.make()
    steps.end("build")
    with compat.finishing(order.model_config):
        compat.fill_with_dummies(order.loader.load_config, model, order.model_config)
        order.finish(model)
    model.eval()
    steps.end("finish")
    compat.set_flags(model, artifact.scalars["coldsnap.scalars"])
    with _no_collections():
        walked = look_at(model)
        _require_none(snapshot.layout_differences(walked, artifact), artifact)
        steps.end("compare")
        filling.fill(snapshot.destinations(walked))
        steps.end("fill")
        _require_none(snapshot.value_differences(_with_values(model, walked, artifact), artifact), artifact)
    return model


def _by_loaded(order: Order, artifact: Artifact, filling: Filling, steps: Steps) -> torch.nn.Module:
    with compat.building(order.model_config, order.device):
        model = order.make()
    steps.end("build")
    with compat.finishing(order.model_config):
        with _no_collections():
            walked = look_at(model)
            steps.end("compare")
            filling.fill(snapshot.destinations(walked))
            steps.end("fill")
            compat.set_flags(model, artifact.scalars["coldsnap.scalars"])
            snapshot.restore_host(walked, artifact)
            _require_none(snapshot.differences(look_at(model), artifact), artifact)
        steps.end("compare")
        order.finish(model)
    compat.release_memory()
    steps.end("finish")
    return model.eval()


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """For steps of ours that make many small objects, none of them in a cycle: while they do, Python would look for cycles
    among all objects of the engine, and that takes tenths of a second.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def look_at(model: torch.nn.Module) -> Walked:
    """Walk a model with what the walk has to know of vLLM; native handles are refused by name."""
    walked = walk(model, stop=compat.stop, skip=compat.skip)
    refused = {path: "it holds an address of native memory" for path in walked.slots if compat.handle(path)}
    return replace(walked, refused={**walked.refused, **refused}) if refused else walked


def _with_values(model: torch.nn.Module, walked: Walked, artifact: Artifact) -> Walked:
    """Give a filled model the captured values of Python; what a walk would find now, if nothing else touched it since."""
    snapshot.restore_host(walked, artifact)
    scales = {path: kinds.scalar(value) for path, value in compat.refresh_scales(model).items()}
    return replace(walked, scalars={**walked.scalars, **scales})


def _require_none(found: list[str], artifact: Artifact) -> None:
    if found:
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        raise errors.LayoutError(
            f"build the model by {artifact.scalars[STRATEGY]}: it is not the captured one: {'; '.join(found[:_SHOWN])}{more}",
            stage="publish",
        )


class _Fixed:
    """Where filled tensors were before the engine finished the model, and what was in them."""

    def __init__(self, filled: Mapping[str, torch.Tensor]) -> None:
        self._before = {path: tensor.data_ptr() for path, tensor in filled.items()}
        self._sums = _sums(filled)

    def require(self, finished: Walked) -> None:
        """Finishing a model whose weights are processed already must neither move nor change them.

        Raises:
            LayoutError: It did.
        """
        now = {path: finished.slots[path].tensor for path in self._before if path in finished.slots}
        moved = [path for path, tensor in now.items() if tensor.data_ptr() != self._before[path]]
        sums = _sums(now)
        changed = [path for path, value in self._sums.items() if path in sums and sums[path] != value]
        for what, paths in (("moved", moved), ("changed", changed)):
            if paths:
                raise errors.LayoutError(
                    f"restore {len(self._before)} tensors: post-processing {what} {len(paths)} of them, "
                    f"{', '.join(paths[:_SHOWN])}",
                    stage="publish",
                )


def _sums(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """A sum over the bytes of each storage, under the first of its names: at the memory's own speed, so no digest."""
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for path, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if storage.nbytes():
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            first.setdefault(storage.data_ptr(), (path, flat))
    with torch.no_grad():
        found = {path: _sum(flat) for path, flat in first.values()}
    devices = {sum_.device for sum_ in found.values()}
    together = {device: [path for path in found if found[path].device == device] for device in devices}
    return {
        path: value
        for device, paths in together.items()
        for path, value in zip(paths, torch.stack([found[path] for path in paths]).tolist(), strict=True)
    }


def _sum(flat: torch.Tensor) -> torch.Tensor:
    words = flat[: flat.numel() // 8 * 8].view(torch.int64)
    rest = flat[words.numel() * 8 :]
    return words.sum() + rest.sum() if rest.numel() else words.sum()


@contextlib.contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A bar as vLLM's own loaders have it."""
    if not shown:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc="Restoring weights", unit="B", unit_scale=True) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
