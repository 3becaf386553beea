"""The one file that all loaders read: the blob of an artifact, which is a valid safetensors file."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.loaders import base
from coldsnap import _native, errors, settings
from coldsnap._bench import arena, captures, host, workspace
from coldsnap.artifact import open_artifact
from coldsnap.tensors import native_specs

_SHARD = "shard-00-00-00"
_BLOB = "weights.safetensors"


@dataclass(frozen=True)
class Source:
    """Where the blob lies and what it holds.

    Attributes:
        blob: The file that is loaded.
        scratch: A folder for logs, gone after the run.
        payload_bytes: Bytes of its tensors; all rates count these.
        tensors: How many it has.
        content: Where its bytes come from, without a path.
    """

    blob: Path
    scratch: Path
    payload_bytes: int
    tensors: int
    content: str

    def files(self) -> list[Path]:
        """List the blob and what a restore reads besides it; all of it has to be cold."""
        return sorted(path for path in self.blob.parent.parent.rglob("*") if path.is_file())


def prepare(path: Path | None, nbytes: int, seed: int, stack: ExitStack) -> Source:
    """Find or write the artifact.

    Args:
        path: A folder for a random blob (None: the user's cache folder), an artifact's blob, which is read where it is,
            or any safetensors file, whose tensors are written to an artifact beside it.
        nbytes: Payload of a random blob.
        seed: Of its bytes.
        stack: Removes what was written when it is closed.
    Raises:
        RequestInvalidError: `path` is neither, or the blob does not fit; nothing was written.
    """
    if path is not None and not path.exists():
        raise errors.RequestInvalidError(
            f"read --path={path}: there is no such file or folder", remedy="give a folder or a safetensors file"
        )
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coldsnap-peers.")))
    if path is not None and path.is_file():
        path = path.resolve()
        if (path.parent.parent / "artifact.json").is_file():
            return _opened(path, scratch, f"the artifact's {path.name}")
        folder = stack.enter_context(workspace.working_folder(path.parent)) / "artifact"
        _write_tensors(path, folder)
        return _opened(folder / _SHARD / _BLOB, scratch, f"the tensors of {path.name}")
    parent = path if path is not None else workspace.default_parent()
    folder = stack.enter_context(workspace.working_folder(parent)) / "artifact"
    _write_random(parent, nbytes, seed, folder)
    return _opened(folder / _SHARD / _BLOB, scratch, f"random bytes, seed {seed}")


def _opened(blob: Path, scratch: Path, content: str) -> Source:
    with open_artifact(blob.parent.parent, shard=blob.parent.name) as artifact:
        nameless = {entry.name for entry in base.entries_of(base.read_header(blob))} ^ set(artifact)
        if nameless:
            raise errors.RequestInvalidError(
                f"compare loaders over {blob.name}: {len(nameless)} of its entries stand for tensors that share memory "
                f"or have no safetensors type, as {min(nameless)!r}, and each loader would give something else for them",
                remedy="give a file whose tensors are all contiguous and apart",
            )
        return Source(blob, scratch, artifact.payload_bytes, len(artifact), content)


def _write_random(parent: Path, nbytes: int, seed: int, folder: Path) -> None:
    """Write the blob of a calibration: the same extents and bytes."""
    if nbytes < arena.MIN_BYTES:
        raise errors.RequestInvalidError(
            f"write a blob of {nbytes} bytes: too few for its extents",
            remedy=f"give at least --bytes={arena.MIN_BYTES}",
        )
    host.require_space(parent, nbytes)
    host.require_memory(nbytes, 0, on_host=True)
    pieces = arena.pieces_of(nbytes)
    memory = arena.HostArena(pieces)
    memory.fill(seed, settings.default_read_threads(_native.limits()))
    workspace.interruptible(lambda: captures.write_artifact(folder, pieces, memory))


def _write_tensors(path: Path, folder: Path) -> None:
    """Write the tensors of a safetensors file as an artifact."""
    from safetensors.torch import load_file

    host.require_space(path.parent, path.stat().st_size)
    host.require_memory(path.stat().st_size, 0, on_host=True)
    tensors = load_file(path)  # mapped, each with a storage of its own
    _native.write_artifact(os.fspath(folder), native_specs(tensors), "{}", "{}", "{}")
