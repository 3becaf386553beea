"""An artifact that lies, with every digest that covers the lie computed again: what nobody but its writer can find."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from coldsnap import _native
from tests.format.helpers import SHARD, canonical, sha256

FILES = ("weights.safetensors", "leaves.bin", "manifest.json")
MAX_INTEGER = (1 << 53) - 1

Edit = Callable[[bytes], bytes]


def write_good(folder: pathlib.Path) -> None:
    """Three extents: 0 and 1 are large ("a", "m"), 2 is small ("b", and "c" inside it); "e" has no bytes."""
    data = {name: (np.arange(nbytes) % 251).astype(np.uint8) for name, nbytes in (("a", 70_000), ("m", 65_536))}
    small = np.arange(25, dtype=np.float32)
    specs = [
        (name, "U8", [array.size], [1], array.ctypes.data, array.ctypes.data, array.nbytes, number, "", [])
        for number, (name, array) in enumerate(data.items())
    ]
    at = small.ctypes.data
    specs.append(("b", "F32", [25], [1], at, at, small.nbytes, 2, "parameter", ["persistent=1", "requires_grad=0"]))
    specs.append(("c", "F32", [5], [1], at + 20, at, small.nbytes, 3, "", []))
    specs.append(("e", "I64", [0, 4], [4, 1], 0, 0, 0, 4, "", []))
    _native.write_artifact(str(folder), specs, '{"model":"hostile"}', '{"scale":"f64:3ff0000000000000"}', "{}")


class Forgery:
    """A copy of the good artifact at ``folder``.

    Attributes:
        artifact: artifact.json, to be changed before `seal`.
        manifest: The shard's manifest.json, to be changed before `seal`.
    """

    def __init__(self, good: pathlib.Path, folder: pathlib.Path) -> None:
        shutil.copytree(good, folder)
        self.folder = folder
        self.artifact: dict[str, Any] = json.loads(self.path("artifact.json").read_bytes())
        self.manifest: dict[str, Any] = json.loads(self.path("manifest.json").read_bytes())

    def path(self, name: str) -> pathlib.Path:
        return self.folder / name if name == "artifact.json" else self.folder / SHARD / name

    @property
    def record(self) -> dict[str, Any]:
        """What artifact.json says of the shard."""
        return self.artifact["shards"][0]

    def column(self, table: str, name: str) -> list[Any]:
        return self.manifest[table][name]

    def tensor(self, name: str) -> int:
        """The row of a tensor."""
        return self.manifest["tensors"]["names"].index(name)

    def put(self, name: str, data: bytes) -> None:
        """Give a file other bytes; artifacts are read-only, so it becomes a new file."""
        self.path(name).unlink()
        self.path(name).write_bytes(data)

    def resize(self, name: str, nbytes: int) -> None:
        """Cut a file, or lengthen it by a hole."""
        self.path(name).chmod(0o644)
        os.truncate(self.path(name), nbytes)

    def flip(self, name: str, offset: int) -> None:
        data = bytearray(self.path(name).read_bytes())
        data[offset] ^= 1
        self.put(name, bytes(data))

    def seal(self, *, keep: tuple[str, ...] = (), manifest: Edit | None = None, artifact: Edit | None = None) -> None:
        """Write both documents, with digests and sizes that fit.

        Args:
            keep: Fields that stay as the attack has set them.
            manifest: Changes the text of manifest.json, which then is what artifact.json has size and digest of.
            artifact: Changes the text of artifact.json.
        """
        text = manifest(self._manifest_text(keep)) if manifest else self._manifest_text(keep)
        self.put("manifest.json", text)
        found = {
            "blob_bytes": self.path("weights.safetensors").stat().st_size,
            "leaves_bytes": self.path("leaves.bin").stat().st_size,
            "manifest_bytes": len(text),
            "manifest_sha256": sha256(text),
            "shard_root": self.manifest.get("shard_root"),
        }
        self.record.update({key: value for key, value in found.items() if key not in keep})
        if "artifact_root" not in keep:
            shards = [[shard["name"], shard["shard_root"]] for shard in self.artifact["shards"]]
            identity = sha256(canonical(self.artifact["identity"]))
            root = {"format": 1, "identity": identity, "shards": shards}
            self.artifact["artifact_root"] = sha256(canonical(root))
        described = canonical(self.artifact)
        self.put("artifact.json", artifact(described) if artifact else described)

    def _manifest_text(self, keep: tuple[str, ...]) -> bytes:
        manifest = self.manifest
        found = {
            "layout_digest": {key: manifest.get(key) for key in ("scalars", "tensors")},
            "shard_root": {
                "extents_digest": sha256(canonical({"extents": manifest.get("extents")})),
                **{key: manifest.get(key) for key in ("blob_bytes", "header_sha256", "leaves_sha256")},
            },
        }
        if "layout_digest" not in keep:
            manifest["layout_digest"] = sha256(canonical(found["layout_digest"]))
        found["shard_root"]["layout_digest"] = manifest["layout_digest"]
        if "shard_root" not in keep:
            manifest["shard_root"] = sha256(canonical(found["shard_root"]))
        return canonical(manifest)


def replace(old: bytes, new: bytes) -> Edit:
    """An edit of a text that holds ``old`` once or more; the first becomes ``new``."""

    def edit(text: bytes) -> bytes:
        assert old in text, (old, text[:2000])
        return text.replace(old, new, 1)

    return edit


Attack = Callable[[Forgery], None]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Register an attack under its name, with ``-`` for ``_``."""
    name = function.__name__.replace("_", "-")
    assert name not in ATTACKS, f"two attacks are called {name}"
    ATTACKS[name] = function
    return function
