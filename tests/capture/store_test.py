"""Captures into a store: where they lie, which one is current, what is collected, and what is not."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coldsnap
from coldsnap import Store, stored
from coldsnap import store as module
from tests.api.helpers import file_of, flip_bit
from tests.capture import helpers
from tests.capture.helpers import Fault, fails

IDENTITY = {"model": "example", "rank": 0}


def capture(store: Store, value: float = 1.0, *, identity: dict | None = None, replace: bool = False, **more: str):
    tensors = {"w": np.full(70_000, value, np.float32)}
    return coldsnap.capture(tensors, store=store, identity=identity or IDENTITY, replace=replace, **more)


def restored(artifact: coldsnap.Artifact) -> float:
    found = helpers.destinations(artifact)
    coldsnap.hydrate(artifact, found)
    return float(found["w"][0])


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_where_an_artifact_lies(backend: str, tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path / "deep" / "store")
    receipt = capture(store, backend=backend)
    folder = store.folder_of(IDENTITY)
    assert folder.parent == store.path
    assert store.current(IDENTITY) == folder / receipt.artifact_root
    current = f'{{"artifact_root":"{receipt.artifact_root}","format":1}}'
    assert (folder / "current").read_text() == current
    with store.open(IDENTITY) as artifact:
        assert artifact.artifact_root == receipt.artifact_root
        assert artifact.identity == IDENTITY
        assert restored(artifact) == 1.0
    assert helpers.names_in(store.path / ".incoming") == []


def test_another_order_of_keys_is_the_same_identity(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    capture(store)
    assert store.current(dict(reversed(IDENTITY.items()))) is not None
    assert store.current({"model": "example", "rank": 1}) is None
    with pytest.raises(coldsnap.RequestInvalidError, match="there is none"):
        store.open({"model": "another"})


@pytest.mark.parametrize("backend", helpers.BACKENDS)
def test_the_same_content_again_is_verified_and_reported(backend: str, tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    first = capture(store)
    before = helpers.files_of(tmp_path)
    again = capture(store, backend=backend)
    assert again.artifact_root == first.artifact_root
    assert "already_present" in helpers.codes(again)
    assert "already_present" not in helpers.codes(first)
    assert helpers.files_of(tmp_path) == before


def test_a_damaged_artifact_is_not_taken_for_the_new_one(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    capture(store)
    artifact = store.current(IDENTITY)
    assert artifact is not None
    flip_bit(file_of(artifact, "weights.safetensors"), 65536 + 1234)
    with pytest.raises(coldsnap.DataLossError, match="extent 0") as caught:
        capture(store)
    assert f"before another capture: coldsnap store rm {artifact.name}" in caught.value.remedy
    assert helpers.names_in(store.path / ".incoming") == []


def test_other_content_under_one_identity_needs_replace(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    first = capture(store)
    with pytest.raises(coldsnap.ExistsError, match=first.artifact_root) as caught:
        capture(store, 2.0)
    assert "replace=True" in caught.value.remedy
    assert [entry.artifact_root for entry in store.ls()] == [first.artifact_root]

    second = capture(store, 2.0, replace=True)
    assert {entry.artifact_root: entry.current for entry in store.ls()} == {
        first.artifact_root: False,
        second.artifact_root: True,
    }
    with store.open(IDENTITY) as artifact:
        assert restored(artifact) == 2.0
    back = capture(store, replace=True)  # the first is still there, whole
    assert "already_present" in helpers.codes(back)
    assert store.current(IDENTITY) == store.folder_of(IDENTITY) / first.artifact_root


def test_identities_do_not_see_each_other(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    roots = {capture(store, identity={"rank": rank}).artifact_root for rank in (0, 1)}
    assert len(roots) == 2  # the identity is part of the root, so equal weights don't make equal artifacts
    assert len(store.ls()) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"artifact_root":"../..","format":1}', '{"artifact_root":"', "x" * 5000])
def test_a_damaged_current_is_no_artifact(text: str, tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    capture(store)
    current = store.folder_of(IDENTITY) / "current"
    current.chmod(0o644)
    current.write_text(text)
    with pytest.raises(coldsnap.FormatInvalidError, match="current"):
        store.open(IDENTITY)
    [entry] = store.ls()
    assert not entry.current
    before = helpers.files_of(tmp_path)
    with pytest.raises(coldsnap.FormatInvalidError, match="current"):
        capture(store, 2.0)
    assert helpers.files_of(tmp_path) == before


def test_when_current_can_not_be_moved_nothing_appears(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    first = capture(store)
    with monkeypatch.context() as patched:
        fault = Fault(patched, "rename", fails(errno.EIO))
        with pytest.raises(coldsnap.IoError, match="move the new current to its place"):
            capture(store, 2.0, replace=True)
    assert fault.fired
    assert [(entry.artifact_root, entry.current) for entry in store.ls()] == [(first.artifact_root, True)]
    assert sorted(os.listdir(store.folder_of(IDENTITY))) == sorted([first.artifact_root, "current"])


def test_an_artifact_without_current_becomes_it_with_the_next_capture(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    first = capture(store)
    (store.folder_of(IDENTITY) / "current").unlink()  # as after a power cut between the two renames
    assert store.current(IDENTITY) is None
    assert "already_present" in helpers.codes(capture(store))
    assert store.current(IDENTITY) == store.folder_of(IDENTITY) / first.artifact_root


def test_a_current_that_names_nothing_is_replaced(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    first = capture(store)
    shutil.rmtree(store.folder_of(IDENTITY) / first.artifact_root)
    assert store.current(IDENTITY) is None
    second = capture(store, 2.0)
    assert store.current(IDENTITY) == store.folder_of(IDENTITY) / second.artifact_root


def test_ls_says_what_is_wrong(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    assert store.ls() == []
    receipt = capture(store)
    [entry] = store.ls()
    assert (entry.artifact_root, entry.current, entry.problem) == (receipt.artifact_root, True, "")
    assert entry.nbytes == (entry.path / "shard-00-00-00" / "weights.safetensors").stat().st_size
    assert entry.age_s >= 0
    assert entry.path.parent.name == entry.identity_digest
    (entry.path / "artifact.json").unlink()
    [entry] = store.ls()
    assert entry.problem.startswith("its artifact.json can't be read")


def test_gc_by_size_takes_the_oldest_that_are_not_current(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    roots = [capture(store, float(value), replace=True).artifact_root for value in range(4)]
    for age, root in enumerate(reversed(roots)):
        folder = store.folder_of(IDENTITY) / root
        os.utime(folder, (1e9 - 100 * age, 1e9 - 100 * age))
    each = store.ls()[0].nbytes
    assert store.gc(max_bytes=4 * each) == []
    assert [entry.artifact_root for entry in store.gc(max_bytes=2 * each)] == roots[:2]
    assert [entry.artifact_root for entry in store.gc(max_bytes=0)] == [roots[2]]
    [last] = store.ls()
    assert (last.artifact_root, last.current) == (roots[3], True)
    assert helpers.names_in(store.path / ".trash") == []

    assert [entry.artifact_root for entry in store.gc(max_bytes=0, keep_current=False)] == [roots[3]]
    assert store.current(IDENTITY) is None
    assert sorted(os.listdir(store.path)) == [".incoming", ".lock", ".trash"]


def test_gc_by_age(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    old, new = (capture(store, value, replace=True).artifact_root for value in (1.0, 2.0))
    os.utime(store.folder_of(IDENTITY) / old, (1e9, 1e9))
    assert store.gc() == []
    assert [entry.artifact_root for entry in store.gc(max_age_s=3600)] == [old]
    assert [entry.artifact_root for entry in store.ls()] == [new]
    with pytest.raises(coldsnap.RequestInvalidError, match="max_age_s is -1"):
        store.gc(max_age_s=-1)


def test_gc_leaves_what_is_open(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    root = capture(store).artifact_root
    with store.open(IDENTITY) as artifact:
        assert store.gc(max_bytes=0, keep_current=False) == []
        assert restored(artifact) == 1.0
    assert [entry.artifact_root for entry in store.gc(max_bytes=0, keep_current=False)] == [root]


def test_gc_leaves_what_another_process_has_open(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    capture(store)
    program = textwrap.dedent(
        """
        import sys, coldsnap
        artifact = coldsnap.open(sys.argv[1])
        print("open", flush=True)
        sys.stdin.read()
        """
    )
    command = [sys.executable, "-c", program, str(store.current(IDENTITY))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        assert store.gc(max_bytes=0, keep_current=False) == []
        child.kill()  # and nobody cleans up after it
        child.wait()
    assert len(store.gc(max_bytes=0, keep_current=False)) == 1


def lose_a_bit(artifact: pathlib.Path) -> None:
    flip_bit(file_of(artifact, "weights.safetensors"), 65536 + 1234)


def lose_the_blob(artifact: pathlib.Path) -> None:
    file_of(artifact, "weights.safetensors").unlink()


def lose_the_description(artifact: pathlib.Path) -> None:
    (artifact / "artifact.json").unlink()


@pytest.mark.parametrize("damage", [lose_a_bit, lose_the_blob, lose_the_description], ids=lambda each: each.__name__)
def test_a_damaged_current_artifact_is_removed_by_its_root_and_captured_again(
    damage: Callable[[pathlib.Path], None], tmp_path: pathlib.Path
) -> None:
    store = Store(tmp_path)
    root = capture(store).artifact_root
    capture(store, identity={"model": "another"})
    artifact = store.current(IDENTITY)
    assert artifact is not None
    damage(artifact)
    with pytest.raises((coldsnap.DataLossError, coldsnap.FormatInvalidError)):
        capture(store)
    removed = store.remove(root)
    assert (removed.artifact_root, removed.current) == (root, True)
    assert store.current(IDENTITY) is None
    assert [entry.current for entry in store.ls()] == [True]  # the other one
    assert helpers.names_in(store.path / ".trash") == []
    assert capture(store).artifact_root == root
    with store.open(IDENTITY) as opened:
        assert restored(opened) == 1.0


def test_what_is_open_is_not_removed(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    root = capture(store).artifact_root
    before = helpers.files_of(tmp_path)
    with store.open(IDENTITY) as artifact:
        with pytest.raises(coldsnap.PolicyRefusedError, match="it is open"):
            store.remove(root)
        assert restored(artifact) == 1.0
    assert helpers.files_of(tmp_path) == before
    with pytest.raises(coldsnap.RequestInvalidError, match="there is none"):
        store.remove("0" * 64)


def test_gc_collects_what_has_lost_its_blob(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    root = capture(store).artifact_root
    lose_the_blob(store.folder_of(IDENTITY) / root)
    assert [entry.artifact_root for entry in store.gc(max_bytes=0, keep_current=False)] == [root]
    assert store.ls() == []


def test_publishing_and_collecting_keep_each_other_waiting(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    locked = []

    def looked(step: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def look(*arguments: Any) -> Any:
            with (tmp_path / ".lock").open() as file, contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return real(*arguments)
            locked.append(step)
            return real(*arguments)

        return look

    monkeypatch.setattr(Store, "_move", looked("move", Store._move))
    monkeypatch.setattr(stored, "point", looked("point", stored.point))
    monkeypatch.setattr(Store, "_trashed", looked("trash", Store._trashed))
    capture(store)
    assert len(store.gc(max_bytes=0, keep_current=False)) == 1
    assert locked == ["move", "point", "trash"]


def test_current_while_another_becomes_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    root = capture(store).artifact_root
    collected = ["0" * 64]  # what `current` said a moment ago

    def read(folder: pathlib.Path) -> str | None:
        return collected.pop() if collected else real(folder)

    real = stored.current_root
    monkeypatch.setattr(stored, "current_root", read)
    assert store.current(IDENTITY) == store.folder_of(IDENTITY) / root
    assert not collected


def test_opening_while_another_becomes_current(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    capture(store)
    real, calls = module.open_artifact, []

    def replaced_in_between(path: pathlib.Path, **more: Any) -> coldsnap.Artifact:
        calls.append(path)
        if len(calls) == 1:
            with monkeypatch.context() as patched:
                patched.setattr(module, "open_artifact", real)
                capture(store, 2.0, replace=True)
                assert len(store.gc(max_bytes=0)) == 1
        return real(path, **more)

    monkeypatch.setattr(module, "open_artifact", replaced_in_between)
    with store.open(IDENTITY) as artifact:
        assert restored(artifact) == 2.0
    assert len(calls) == 2


def test_a_removal_that_was_cut_short_is_finished_by_the_next(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    capture(store)
    calls = []

    def dies(path: pathlib.Path) -> None:
        calls.append(path)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", dies)
        with pytest.raises(coldsnap.IoError, match="Input/output error"):
            store.gc(max_bytes=0, keep_current=False)
    assert len(calls) == 1
    assert store.ls() == []  # gone for everybody, though its bytes are still there
    assert helpers.names_in(store.path / ".trash") != []
    assert store.gc() == []
    assert helpers.names_in(store.path / ".trash") == []


@pytest.mark.parametrize("then", ["python", "direct"])
@pytest.mark.parametrize("killed", ["python", "direct"])
def test_what_a_killed_capture_left_goes_with_the_next(killed: str, then: str, tmp_path: pathlib.Path) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys
        import numpy as np
        import coldsnap

        class Killer:
            looks = 0
            def is_set(self):
                self.looks += 1
                if self.looks == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                return False

        weights = {"w": np.ones(1 << 22)}
        coldsnap.capture(weights, store=sys.argv[1], identity={"model": "k"}, backend=sys.argv[2], cancel=Killer())
        """
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), killed], check=False)
    assert done.returncode == -9
    store = Store(tmp_path)
    assert store.ls() == []
    assert any(name.endswith("weights.safetensors") for name in helpers.names_in(store.path / ".incoming"))
    weights = {"w": np.ones(1 << 22)}
    coldsnap.capture(weights, store=store, identity={"model": "k"}, backend=then)
    assert helpers.names_in(store.path / ".incoming") == []
    [entry] = store.ls()
    assert coldsnap.verify(entry.path).ok
    coldsnap.capture(weights, tmp_path / "apart", identity={"model": "k"})
    assert helpers.files_of(entry.path) == helpers.files_of(tmp_path / "apart")


def test_captures_of_the_same_at_the_same_time(tmp_path: pathlib.Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        import numpy as np
        import coldsnap
        sys.stdin.readline()
        try:
            receipt = coldsnap.capture({"w": np.ones(300_000)}, store=sys.argv[1], identity={"model": "raced"})
        except coldsnap.PolicyRefusedError as refused:
            receipt = refused.receipt
        print(receipt.to_json())
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(4)]
    outputs = [child.communicate("go\n")[0] for child in children]
    receipts = [json.loads(output) for output in outputs]
    refused = [receipt["error"]["message"] for receipt in receipts if not receipt["ok"]]
    assert all("another capture is building there" in message for message in refused)
    done = [receipt for receipt in receipts if receipt["ok"]]
    present = [[reason["code"] for reason in receipt["reasons"]].count("already_present") for receipt in done]
    assert sorted(present) == [0, *[1] * (len(done) - 1)]  # one wrote it, and who came later found it
    assert [entry.artifact_root for entry in Store(tmp_path).ls()] == [done[0]["artifact_root"]]
    assert coldsnap.verify(Store(tmp_path).ls()[0].path).ok


def test_one_capture_of_an_identity_at_a_time(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path)
    caught: list[coldsnap.PolicyRefusedError] = []

    def progress(done: int, total: int) -> None:
        if not caught:
            with pytest.raises(coldsnap.PolicyRefusedError, match="another capture is building") as refused:
                capture(store)
            caught.append(refused.value)
            assert capture(store, identity={"model": "another"}).ok

    tensors = {"w": np.full(70_000, 1.0, np.float32)}
    assert coldsnap.capture(tensors, store=store, identity=IDENTITY, progress=progress).ok
    assert len(caught) == 1
    assert len(store.ls()) == 2
