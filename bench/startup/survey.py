"""What the vLLM here is and can do, as one line of JSON behind whatever its import prints.

python3 survey.py LOAD_FORMAT_PACKAGE ...
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys

MARK = "survey: "


def main(packages: list[str]) -> None:
    """Print the versions, whether text-only starts have an argument of their own, and which of `packages` are there."""
    import torch
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    names = {field.name for field in dataclasses.fields(EngineArgs)}
    found = {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "language_model_only": "language_model_only" in names,
        "packages": [name for name in packages if importlib.util.find_spec(name) is not None],
    }
    print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
