"""A worker extension that changes a weight of a running engine, as an update in place does."""

from __future__ import annotations

from typing import Any


class Touch:
    """vLLM mixes it into its worker: ``--worker-extension-cls tests.engines.touch.Touch``."""

    model_runner: Any

    def touch(self) -> None:
        """Add one to every value of one parameter."""
        import torch

        with torch.no_grad():
            next(self.model_runner.model.parameters()).add_(1)
