"""What captures and restores by every backend do on one file system, as the cells of its rows in docs/filesystems.md."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

import coldsnap
from tests.api import helpers
from tests.filesystems.systems import Made
from tests.trust.place import blob_of

_NOT_OF_FILES = ("explicit", "throttled")  # who chose the backend; what else went on in the machine
CAPTURES = helpers.BACKENDS
RESTORES = ("python", "buffered", "direct", "auto, blob dropped from the cache", "auto, blob just read")


class Rows(NamedTuple):
    """The cells below `CAPTURES` and below `RESTORES`."""

    captures: list[str]
    restores: list[str]


def rows_of(made: Made) -> Rows:
    """Capture and restore by every backend.

    Raises:
        AssertionError: A byte or digest is wrong, or what was refused left something behind.
    """
    tensors = helpers.mixed_tensors()
    captures = [_captured(made.on, backend, tensors) for backend in CAPTURES]
    roots = {_root(path) for path in made.on.iterdir()}
    assert len(roots) <= 1, f"captures of the same tensors differ: {roots}"
    name = "restored"
    coldsnap.capture(tensors, made.below / name, backend="buffered")
    return Rows(captures, [_restored(made.on / name, words, tensors) for words in RESTORES])


def _root(path: pathlib.Path) -> str:
    coldsnap.verify(path)
    with coldsnap.open(path) as artifact:
        return artifact.artifact_root


def _captured(folder: pathlib.Path, backend: str, tensors: helpers.Tensors) -> str:
    before = sorted(folder.rglob("*"))
    try:
        receipt = coldsnap.capture(tensors, folder / backend, backend=backend)
    except coldsnap.Error as failure:
        assert sorted(folder.rglob("*")) == before
        return _refused(failure)
    return _ran(receipt, backend)


def _restored(artifact: pathlib.Path, words: str, tensors: helpers.Tensors) -> str:
    backend, _, cache = words.partition(", blob ")
    _prepare_cache(blob_of(artifact), cache)
    found = helpers.untouched_like(tensors)
    try:
        receipt = coldsnap.hydrate(artifact, found, backend=backend, verify="crc32+sha256")
    except coldsnap.Error as failure:
        assert helpers.every_byte_is(found, helpers.UNTOUCHED)
        return _refused(failure)
    helpers.assert_same_bytes(found, tensors)
    return _ran(receipt, backend)


def _prepare_cache(blob: pathlib.Path, cache: str) -> None:
    if cache == "just read":
        blob.read_bytes()
    elif cache:
        with blob.open("rb") as file:
            os.fsync(file)  # what is not on the drive can't be dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _ran(receipt: coldsnap.Receipt, backend: str) -> str:
    routes = [route["route"] for route in receipt.routes]
    assert backend == "auto" or routes == [backend], f"backend {backend} was asked for, and {routes} ran"
    codes = [code for code in helpers.codes(receipt) if code not in _NOT_OF_FILES]
    return ": ".join(filter(None, (", ".join(f"`{route}`" for route in routes), ", ".join(f"`{c}`" for c in codes))))


def _refused(failure: coldsnap.Error) -> str:
    assert "; " in str(failure), f"no remedy: {failure}"
    return f"refused, `{failure.code}`"
