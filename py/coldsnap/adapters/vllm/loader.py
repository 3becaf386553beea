"""The load format ``coldsnap``: restore the model from its artifact, or let the engine load it, and capture it then.

    decide     before anything is built: which artifact, or why none; all ranks the same
    restore    build, fill, finish, compare; then a second verdict: where one rank failed, all fail
    load       the engine's own loader, with one line that says why; then a capture where that makes sense

After building has begun nothing falls back in this process: the engine keeps a register of layers. A failure of the data
is remembered first, as a quarantine of the artifact, so the next start loads normally.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

import torch
from vllm.config import ModelConfig, VllmConfig
from vllm.config.load import LoadConfig
from vllm.logger import init_logger
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from coldsnap import errors
from coldsnap.adapters import attempts, configuration, early, search, verdict
from coldsnap.adapters.configuration import Configuration
from coldsnap.adapters.filling import FAILED, for_the_next_start
from coldsnap.adapters.live import Did
from coldsnap.adapters.search import Found, Wanted
from coldsnap.adapters.verdict import Outcome, Part, Ranks
from coldsnap.adapters.vllm import compat, engine, identity, lines, live, pool, started
from coldsnap.adapters.vllm.capture import Capture
from coldsnap.adapters.vllm.kept import keep, remember
from coldsnap.adapters.vllm.restore import Order, Steps, progress_bar, restore, strategies
from coldsnap.adapters.vllm.started import Started
from coldsnap.artifact import Artifact
from coldsnap.settings import Setting
from coldsnap.values import canonical, digest_of
from coldsnap.version import VERSION

# Below vLLM's own logger, so that lines appear where and how its own do.
_log = init_logger("vllm.coldsnap")
_LONG_S = 1.0  # a user would wonder what the start is doing


class ColdsnapLoader(BaseModelLoader):
    """vLLM's loader for ``--load-format coldsnap``. Making one does nothing: vLLM makes some only to ask."""

    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(load_config)

    def download_model(self, model_config: ModelConfig) -> None:
        """Fetch the checkpoint as the engine's own loader would."""
        compat.own_loader(self.load_config).download_model(model_config)

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        """Load the checkpoint anew into a model that is there: the engine's own loader's business."""
        compat.own_loader(self.load_config).load_weights(model, model_config)

    def load_model(self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = "") -> torch.nn.Module:
        """The finished model: restored, or loaded by the engine's own loader.

        Raises:
            coldsnap.Error: The configuration makes no sense; the mode is ``restore`` or ``capture`` and that can't be;
                or a restore failed after it had begun.
        """
        found = configuration.resolve(self.load_config.model_loader_extra_config, os.environ)
        loader = compat.own_loader(self.load_config)
        why = "the mode is off" if found.mode.value == "off" else ""
        if why:
            early.forget()
        elif compat.loads_without_others(vllm_config, model_config):
            why = "drafts in a pipeline are loaded by one rank alone"
        if why:
            early.end()
            _log.info("coldsnap: loading normally: %s", why)
            return loader.load_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        return _Start(found, loader, vllm_config, model_config, prefix).model()


class _Start:
    """One load of one model, as one rank sees it."""

    def __init__(
        self, found: Configuration, loader: BaseModelLoader, vllm_config: Any, model_config: Any, prefix: str
    ) -> None:
        self._configuration, self._loader = found, loader
        self._vllm_config, self._model_config, self._prefix = vllm_config, model_config, prefix
        self._device = compat.device_of(loader, vllm_config)
        self._ranks: Ranks = compat.ranks()
        self._shard = compat.shard_of(vllm_config)
        self._identity: dict[str, Any] | None = None
        self._steps = Steps()

    def model(self) -> torch.nn.Module:
        found = self._found()
        joint = verdict.before_building(self._ranks, self._part(found))
        if joint.artifact and found.artifact is not None:
            self._steps.end("decide")
            with found.artifact as artifact:
                return self._restored(artifact, joint.token)
        if found.artifact is not None:  # another rank can't
            found.artifact.close()
        if self._configuration.mode.value == "restore":
            raise _refusal(joint)
        return self._loaded(joint)

    def _found(self) -> Found:
        """The artifact to restore from, or why there is none."""
        try:
            self._identity = identity.of(
                self._vllm_config,
                self._model_config,
                self._prefix,
                self._checkpoint(),
                compat.facts(),
                compat.modalities(self._model_config),
            )
            canonical(self._identity, "the identity")
        except Exception as cause:  # of whatever kind: a start can do without
            self._identity = None
            return Found(code=getattr(cause, "code", "internal"), why=f"the model can't be identified: {cause}")
        if not self._configuration.may_restore:
            return Found(code="mode", why="the mode is capture")
        by_engine = self._configuration.identity.value == "manifest"
        wanted = Wanted(
            self._identity,
            self._shard,
            strategies(),
            identity.different,
            identity.without_checkpoint if by_engine else dict,
        )
        return search.find(self._configuration, wanted, os.environ)

    def _checkpoint(self) -> dict[str, Any]:
        if self._configuration.identity.value == "manifest":
            return {}
        begin = time.monotonic()
        found = compat.checkpoint_of(self._model_config, os.environ)
        seconds = time.monotonic() - begin
        if seconds > _LONG_S and self._ranks.rank == 0:
            _log.info(
                "coldsnap: reading the checkpoint to identify it took %.1f s; the next start knows it, if the state folder "
                "can be written to and stays (COLDSNAP_STATE_DIR)",
                seconds,
            )
        return found

    def _part(self, found: Found) -> Part:
        root = "" if found.artifact is None else found.artifact.artifact_root
        # The same bytes would be under the same quarantine. Those of an earlier stage are others.
        again = found.quarantined is not None and found.quarantined.code == "layout_mismatch"
        return Part(self._digest(), root, found.code, found.why, secrets.token_hex(16), again)

    def _restored(self, artifact: Artifact, token: str) -> torch.nn.Module:
        root, outcome, model, receipt = artifact.artifact_root, Outcome(), None, None
        with progress_bar(self._ranks.rank == 0 and self._loader.load_config.use_tqdm_on_load) as progress:
            order = Order(self._loader, self._vllm_config, self._model_config, self._prefix, self._device, progress)
            try:
                model, receipt = restore(order, artifact, self._steps)
                outcome = Outcome(nbytes=receipt.payload_bytes, seconds=receipt.wall_s)
            except Exception as failure:
                outcome, cause = Outcome.of(failure), failure
                keep(getattr(failure, "receipt", None))
        try:
            outcomes = verdict.after(self._ranks, outcome, f"restore artifact {root[:12]}")
        except errors.Error as failure:
            by_itself = self._configuration.mode.value == "auto"
            then = "the next start loads normally" if by_itself else "capture it again"
            remember(root, failure, then, otherwise="set COLDSNAP_MODE=off")
            raise failure from (cause if outcome.code else None)
        assert model is not None and receipt is not None
        keep(receipt)
        _keep_cached(lambda: contextlib.nullcontext(artifact))
        as_started = Started("restored", root, artifact.native.path, self._shard, artifact.identity)
        self._note(Did("restored", root), token, model, as_started)
        if self._ranks.rank == 0:
            _log.info("%s", lines.restored(receipt, *verdict.total(outcomes)))
        self._steps.end("conclude")
        _log.debug("coldsnap: of artifact %s: %s", root[:12], self._steps)
        return model

    def _note(
        self,
        did: Did,
        token: str,
        model: torch.nn.Module,
        as_started: Started | None = None,
        capture: Capture | None = None,
    ) -> None:
        """Leave word of the engine's target model, for when the engine is there."""
        if self._model_config is not self._vllm_config.model_config:
            return
        if as_started is None:
            early.forget()
        else:
            early.note(as_started.path, self._shard)
            started.note(as_started, model, pool.in_use(self._device))
        live.prepare(self._configuration, str(self._model_config.model), did, token, capture, keep)

    def _loaded(self, joint: Part) -> torch.nn.Module:
        """The engine's own load, with a capture where that makes sense."""
        early.end()  # it reads other files
        first = self._ranks.rank == 0
        if first:
            _log.info("coldsnap: loading normally: %s", joint.why)
        capture = self._capture(joint)
        if capture is None:
            model = self._loader.load_model(
                vllm_config=self._vllm_config, model_config=self._model_config, prefix=self._prefix
            )
            self._note(Did("loaded", None, joint.why), joint.token, model)
            return model
        model = capture.load(self._loader, self._vllm_config, self._model_config, self._prefix)
        self._conclude(capture, joint, model)
        return model

    def _conclude(self, capture: Capture, joint: Part, model: torch.nn.Module) -> None:
        """Say what became of a capture, and leave word of it."""
        first, failure, did = self._ranks.rank == 0, capture.failure, Did("loaded", None, joint.why)
        as_started: Started | None = None
        if failure is not None:
            keep(getattr(failure, "receipt", None))
            if self._configuration.must:
                raise failure
            again = self._remember_unfit(failure) if capture.unfit else ""
            did = did._replace(why=str(failure))
            if first:
                _log.info("coldsnap: not captured: %s%s", failure, again)
        elif capture.planned is not None and first:
            _log.info("%s", lines.planned(capture.later))
        elif capture.receipt is not None:
            keep(capture.receipt)
            did = Did("captured", capture.receipt.artifact_root)
            as_started = Started("captured", *capture.artifact(), self._shard, capture.identity)
            _keep_cached(lambda: capture.store.open(self._identity, shard=self._shard))
            if first:
                nbytes = sum(outcome.nbytes for outcome in capture.outcomes)
                _log.info("%s", lines.captured(capture.receipt, nbytes, capture.seconds, at_once=bool(capture.later)))
        self._note(did, joint.token, model, as_started, capture)

    def _later(self) -> str:
        """When finished weights are captured, if not at the end of loading."""
        when = str(self._configuration.when.value)
        if when == "load" or self._model_config is not self._vllm_config.model_config:  # a draft is small
            return ""
        if not engine.tells_when_built():
            raise errors.PolicyRefusedError(
                f"capture the model when {when}: this version of vLLM does not tell when an engine is ready",
                remedy="set when to load",
            )
        return when

    def _digest(self) -> str:
        return "" if self._identity is None else digest_of(canonical(self._identity, "the identity"))

    def _remember_unfit(self, failure: BaseException) -> str:
        """After finished weights that can't be captured: have the next start capture what they are made from."""
        try:
            attempts.note(self._digest(), str(failure), VERSION, os.environ)
        except errors.Error as cause:
            return f"; and the next start will not know: {cause}"
        return "; the next start captures the weights before post-processing"

    def _capture(self, joint: Part) -> Capture | None:
        """The capture that belongs to this load, the same in every rank; None where there is none to be."""
        must = self._configuration.must
        wanted = must or joint.code == "no_artifact" or joint.again
        by_content = self._configuration.identity.value == "content"
        if not (self._configuration.may_capture and wanted and by_content and joint.identity and self._identity):
            if must:
                raise _refusal(joint)
            return None
        by_loaded = joint.again or attempts.failed(self._digest(), VERSION, os.environ)
        capture = Capture(
            place=Setting("", "default"),
            identity=self._identity,
            ranks=self._ranks,
            shard=self._shard,
            token=joint.token,
            device=self._device,
            replace=must or joint.again,
            only="loaded" if by_loaded else "",
        )
        try:
            capture.later = self._later()
            capture.place = self._configuration.place(os.environ)
        except errors.Error as cause:
            capture.failure = cause
        return capture


def _keep_cached(opened: Callable[[], contextlib.AbstractContextManager[Artifact]]) -> None:
    """Have the next start find the blob in the page cache; where that can't be, this one says so and goes on."""
    reason = for_the_next_start(opened)
    _log.log(logging.INFO if reason["code"] == FAILED else logging.DEBUG, "coldsnap: %s", reason["detail"])


def _refusal(joint: Part) -> errors.Error:
    """The mode names what can't be."""
    if joint.code == "quarantined":
        return errors.QuarantinedError(f"restore the model, as the mode says: {joint.why}", stage="open")
    return errors.PolicyRefusedError(
        f"restore or capture the model, as the mode says: {joint.why}",
        stage="open",
        remedy="COLDSNAP_MODE=auto loads normally where it can't",
    )
