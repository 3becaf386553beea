"""Writes the corpus anew, from the code: ``./bazelw run //tests/request:update``. Look at what git shows then.

The requests of corpus/answers stand in `ANSWERS`; those of corpus/refused.json are made by `breaking`.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

from coldsnap import errors, request_schema
from tests.request import breaking, world

_ARTIFACT = {"path": "artifact"}
# All that would follow from the machine.
_BUFFERED = {"backend": "buffered", "chunk_bytes": 65536, "queue_depth": 2, "read_threads": 1}
# In this order, in one folder: later ones find what earlier ones left.
ANSWERS: dict[str, dict[str, Any]] = {
    "capabilities": {"operation": "capabilities"},
    "capabilities-of-a-folder": {"operation": "capabilities", "path": "."},
    "inspect": {"operation": "inspect", **_ARTIFACT},
    "inspect-no-such-shard": {"operation": "inspect", **_ARTIFACT, "shard": "shard-00-01-00"},
    "hydrate-not-admitted": {"operation": "hydrate", **_ARTIFACT, "verify": "none", **_BUFFERED},
    "hydrate-python-always-compares": {"operation": "hydrate", **_ARTIFACT, "verify": "none"},
    "verify": {"operation": "verify", **_ARTIFACT},
    "verify-nothing-there": {"operation": "verify", "path": "nowhere"},
    "verify-damaged": {"operation": "verify", "path": "damaged"},
    "verify-unreadable": {"operation": "verify", "path": "unreadable"},
    "hydrate": {"operation": "hydrate", **_ARTIFACT},
    "hydrate-buffered": {"operation": "hydrate", **_ARTIFACT, **_BUFFERED, "output": "restored.safetensors"},
    "hydrate-output-is-there": {"operation": "hydrate", **_ARTIFACT, "output": "restored.safetensors"},
    "hydrate-no-folder-for-the-output": {"operation": "hydrate", **_ARTIFACT, "output": "nowhere/a.safetensors"},
    "capture": {"operation": "capture", "source": {"safetensors": ["model.safetensors"]}, "path": "captured"},
    "capture-is-there": {"operation": "capture", "source": {"safetensors": ["model.safetensors"]}, "path": "captured"},
    "capture-into-a-store": {
        "operation": "capture",
        "source": {"numpy": "model.npz"},
        "store": "store",
        "identity": {"model": "example", "scale": 0.5},
        "scalars": {"step": 7},
    },
    "capture-short-source": {"operation": "capture", "source": {"safetensors": ["short.safetensors"]}, "path": "new"},
    "capture-one-name-twice": {
        "operation": "capture",
        "source": {"safetensors": ["model.safetensors", "model.safetensors"]},
        "path": "new",
    },
    "capture-no-source": {"operation": "capture", "source": {"numpy": "nowhere.npy"}, "path": "new"},
    # A regular file that answers every read with EIO: nothing is mapped at address 0.
    "capture-unreadable-source": {"operation": "capture", "source": {"numpy": "/proc/self/mem"}, "path": "new"},
    "capture-no-engine": {"operation": "capture", "source": {"control": "nowhere/socket"}, "store": "store"},
    "capture-what-is-no-socket": {"operation": "capture", "source": {"control": "model.npz"}},
    "qualify-no-model": {"operation": "qualify", "engine": "vllm", "arguments": {}, "artifact": "artifact"},
    "calibrate-too-small": {"operation": "calibrate", "bytes": 1, "device": "host"},
    "status-no-engine": {"operation": "status", "control": "nowhere/socket"},
    "status": {"operation": "status", "receipts": 0},
}


def main() -> None:
    corpus = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"], "tests", "request", "corpus")
    (corpus / "answers").mkdir(parents=True, exist_ok=True)
    _write(corpus / "refused.json", refused())
    for name, entry in answers().items():
        _write(corpus / "answers" / f"{name}.json", entry)


def refused() -> list[dict[str, str]]:
    """The entries of refused.json, with the messages of today."""
    return [entry | {"message": _message_of(request_of(entry))} for entry in breaking.every()]


def request_of(entry: dict[str, str]) -> bytes:
    """The bytes of an entry's request."""
    return base64.b64decode(entry["request_base64"]) if "request_base64" in entry else entry["request"].encode()


def answers() -> dict[str, dict[str, Any]]:
    """The files of answers, with the receipts of today."""
    found = {}
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top, "world")
        folder.mkdir()
        world.make(folder)
        for name, values in ANSWERS.items():
            request = {"format": 1, **values}
            done = world.ask(folder, json.dumps(request).encode())
            receipt = world.steady(done.stdout, folder)
            found[name] = {"request": request, "exit_code": done.returncode, "receipt": receipt}
    return found


def _message_of(request: bytes) -> str:
    try:
        request_schema.parse(request)
    except errors.RequestInvalidError as refusal:
        return refusal.message
    raise AssertionError(f"{request[:200]!r} is not refused")


def _write(path: pathlib.Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
