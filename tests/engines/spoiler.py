"""A worker extension that takes weights away where no memory can be given back: what a sleep of level 2 leaves, on a CPU."""

from __future__ import annotations

import torch

from coldsnap.adapters.vllm.worker import WorkerExtension


class Spoiling(WorkerExtension):
    """coldsnap's own extension, and what spoils weights that it has to find and to bring back."""

    def coldsnap_test_spoil(self, rank: int = -1) -> int:
        """Fill parameters and buffers of one rank, or of all, with 0xFF; how many."""
        if rank not in (-1, self.rank):  # type: ignore[attr-defined]  # vLLM's worker has it
            return 0
        model = self.get_model()  # type: ignore[attr-defined]
        tensors = [*model.parameters(), *model.buffers()]
        for tensor in tensors:
            tensor.untyped_storage().fill_(0xFF)
        return len(tensors)

    def coldsnap_test_move(self) -> str:
        """Give a parameter another place; its name."""
        name, parameter = next(iter(self.get_model().named_parameters()))  # type: ignore[attr-defined]
        parameter.data = torch.clone(parameter.data)
        return name

    def coldsnap_test_poisoned(self) -> list[int]:
        """How many parameters are 0xFF all over, and how many there are."""
        parameters = list(self.get_model().parameters())  # type: ignore[attr-defined]
        poisoned = [each for each in parameters if bool((each.data.view(torch.uint8) == 0xFF).all())]
        return [len(poisoned), len(parameters)]
