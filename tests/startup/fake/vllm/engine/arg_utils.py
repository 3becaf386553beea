"""The arguments that the matrix looks for."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class EngineArgs:
    """As vLLM 0.32 has it, cut down."""

    model: str = ""
    language_model_only: bool = False
