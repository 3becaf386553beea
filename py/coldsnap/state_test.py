"""The state folder: where it is, who may have written to it, and files that are old or new but never half."""

import contextlib
import fcntl
import os
import pathlib
import pwd
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from coldsnap import errors, state

SOMEBODY = 12345


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    return {"COLDSNAP_STATE_DIR": str(tmp_path / "state")}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def give_away(path: pathlib.Path) -> None:
    try:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    except OSError as cause:  # not root, or root of a namespace that has no such user
        pytest.skip(f"a file can't be given to user {SOMEBODY} here: {cause.strerror}")


def mode_of(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"COLDSNAP_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"COLDSNAP_STATE_DIR": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/coldsnap"),
        ({"XDG_STATE_HOME": "b", "HOME": "/c"}, "/c/.local/state/coldsnap"),
        ({"HOME": "/c"}, "/c/.local/state/coldsnap"),
    ],
)
def test_where_the_state_is(environ: dict[str, str], where: str) -> None:
    assert state.state_dir(environ) == pathlib.Path(where)
    assert state.path_of(state.TRUST, environ) == pathlib.Path(where, "trust")
    assert state.path_of(state.RECEIPTS, environ) == pathlib.Path(where, "receipts")
    assert state.profile_path(environ) == pathlib.Path(where, "profile.json")


def test_each_place_has_its_variable() -> None:
    environ = {"HOME": "/c", "COLDSNAP_TRUST_DIR": "/t", "COLDSNAP_RECEIPT_DIR": "/r", "COLDSNAP_PROFILE": "/p.json"}
    assert state.path_of(state.TRUST, environ) == pathlib.Path("/t")
    assert state.path_of(state.RECEIPTS, environ) == pathlib.Path("/r")
    assert state.profile_path(environ) == pathlib.Path("/p.json")


def test_no_test_sees_the_state_of_who_runs_it() -> None:
    """Neither by Bazel's launcher nor by conftest.py."""
    users = state.state_dir({})
    found = [state.path_of(place, os.environ) for place in (state.TRUST, state.RECEIPTS, state.QUARANTINE)]
    assert all(not path.is_relative_to(users) for path in (*found, state.profile_path(os.environ))), found


@pytest.mark.parametrize("variable", ["COLDSNAP_STATE_DIR", "COLDSNAP_TRUST_DIR"])
def test_a_relative_path_is_refused(variable: str) -> None:
    with pytest.raises(errors.RequestInvalidError, match=f"read {variable}: 'here' is relative; give an absolute path"):
        state.path_of(state.TRUST, {variable: "here", "HOME": "/c"})


def test_without_a_home_folder_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.state_dir({}) == pathlib.Path(pwd.getpwuid(os.geteuid()).pw_dir, ".local/state/coldsnap")

    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(errors.IoError, match=r"HOME is not set.*; set COLDSNAP_STATE_DIR"):
        state.state_dir({})


def test_folders_are_made_for_their_owner_alone(
    environ: dict[str, str], tmp_path: pathlib.Path, no_umask: None
) -> None:
    environ["COLDSNAP_STATE_DIR"] = str(tmp_path / "above" / "state")
    with state.opened(state.TRUST, environ) as missing:
        assert missing is None
    assert list(tmp_path.iterdir()) == []
    with state.opened(state.TRUST, environ, make=True) as made:
        assert made is not None
    with state.opened(state.TRUST, environ) as found:
        assert found is not None
    for made_folder in ("above", "above/state", "above/state/trust"):
        assert mode_of(tmp_path / made_folder) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
@pytest.mark.parametrize("which", ["state", "state/trust"])
def test_folders_that_others_may_write_to_are_refused(
    environ: dict[str, str], tmp_path: pathlib.Path, which: str, mode: int
) -> None:
    (tmp_path / "state" / "trust").mkdir(0o700, parents=True)
    (tmp_path / "state").chmod(0o755)  # reading is no harm
    with state.opened(state.TRUST, environ) as fd:
        assert fd is not None
    (tmp_path / which).chmod(mode)
    refused = pytest.raises(
        errors.PolicyRefusedError, match=rf"{which}: others may write to it \(mode 0{mode:o}\); chmod go-w"
    )
    with refused, state.opened(state.TRUST, environ):
        pass


def test_a_folder_of_somebody_else_is_refused(environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "state" / "trust").mkdir(0o700, parents=True)
    give_away(tmp_path / "state" / "trust")
    refused = pytest.raises(errors.PolicyRefusedError, match=f"it belongs to user {SOMEBODY}, this process is user")
    with refused, state.opened(state.TRUST, environ, make=True):
        pass


def test_a_link_in_place_of_a_folder_is_refused(environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "state").symlink_to("elsewhere")
    refused = pytest.raises(errors.PolicyRefusedError, match="is a link; name its target in COLDSNAP_STATE_DIR")
    with refused, state.opened(state.TRUST, environ, make=True):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_place_of_a_folder_fails(environ: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "state").write_text("")
    failed = pytest.raises(errors.IoError, match="Not a directory; let COLDSNAP_STATE_DIR name a folder of your own")
    with failed, state.opened(state.TRUST, environ, make=True):
        pass


def test_what_was_written_is_read(folder: int, tmp_path: pathlib.Path, no_umask: None) -> None:
    assert state.read_file(folder, "file", 100) is None
    for data in (b"one", b"", b"another"):
        state.write_file(folder, "file", data)
        assert state.read_file(folder, "file", 100) == data
        assert state.read_file(None, tmp_path / "file", 100) == data
        assert mode_of(tmp_path / "file") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert state.remove_file(folder, "file")
    assert not state.remove_file(folder, "file")


def test_a_file_may_have_its_size_and_no_more(folder: int) -> None:
    state.write_file(folder, "file", b"12345")
    assert state.read_file(folder, "file", 5) == b"12345"
    with pytest.raises(errors.PolicyRefusedError, match="read file: it has more than 4 bytes"):
        state.read_file(folder, "file", 4)


@pytest.mark.parametrize(
    ("uid", "what"),
    [(500, None), (0, None), (501, "test: it belongs to user 501, this process is user 500; remove it")],
)
def test_owners_are_the_process_s_own_user_and_root(
    monkeypatch: pytest.MonkeyPatch, uid: int, what: str | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 500)
    info = os.stat_result((stat.S_IFREG | 0o600, 1, 1, 1, uid, 0, 0, 0, 0, 0))
    refused = pytest.raises(errors.PolicyRefusedError, match=what) if what else contextlib.nullcontext()
    with refused:
        state._refuse_unless_private(info, "test", "chmod go-w it", "remove it")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_files_that_others_may_write_are_refused(folder: int, tmp_path: pathlib.Path, mode: int) -> None:
    state.write_file(folder, "file", b"")
    (tmp_path / "file").chmod(0o644)
    assert state.read_file(folder, "file", 9) == b""
    (tmp_path / "file").chmod(mode)
    with pytest.raises(errors.PolicyRefusedError, match=rf"others may write to it \(mode 0{mode:o}\).*chmod go-w file"):
        state.read_file(folder, "file", 9)


def test_a_file_of_somebody_else_is_refused(folder: int, tmp_path: pathlib.Path) -> None:
    state.write_file(folder, "file", b"")
    give_away(tmp_path / "file")
    with pytest.raises(errors.PolicyRefusedError, match=f"it belongs to user {SOMEBODY}"):
        state.read_file(folder, "file", 9)


def test_what_is_no_file_is_refused(folder: int, tmp_path: pathlib.Path) -> None:
    state.write_file(folder, "file", b"")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    with pytest.raises(errors.PolicyRefusedError, match="read link: it is a link"):
        state.read_file(folder, "link", 9)
    for name in ("pipe", "folder"):
        with pytest.raises(errors.PolicyRefusedError, match=f"read {name}: it is no regular file"):
            state.read_file(folder, name, 9)


def test_the_file_that_was_checked_is_the_one_that_is_read(
    folder: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.write_file(folder, "file", b"ours")
    whole = os.open

    def replaced_meanwhile(path: str, flags: int, **named: Any) -> int:
        fd = whole(path, flags, **named)
        (tmp_path / "file").unlink()
        (tmp_path / "file").write_text("theirs")
        return fd

    monkeypatch.setattr(os, "open", replaced_meanwhile)
    assert state.read_file(folder, "file", 9) == b"ours"


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_write_that_fails_leaves_what_was_there(
    folder: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    state.write_file(folder, "file", b"old")

    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(errors.NoSpaceError, match="write 3 bytes to file in the state folder: No space left"):
        state.write_file(folder, "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_bytes_are_durable_before_they_have_their_name_and_the_name_before_it_returns(
    folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("folder" if fd == folder else "file"), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda *names, **fds: (calls.append("rename"), rename(*names, **fds)))
    state.write_file(folder, "file", b"new")
    assert calls == ["file", "rename", "folder"]


def test_a_lock_keeps_others_out_until_it_ends(folder: int, tmp_path: pathlib.Path) -> None:
    with state.locked(folder):
        other = os.open(tmp_path / ".lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    assert mode_of(tmp_path / ".lock") == 0o600


def test_a_file_system_without_locks_fails(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with (
        pytest.raises(errors.IoError, match=r"lock \.lock of the state folder: No locks available"),
        state.locked(folder),
    ):
        pass


def test_a_folder_that_can_t_be_made_is_a_failure_and_not_none() -> None:
    environ = {"COLDSNAP_STATE_DIR": "/proc/nothing/can/be/made/here"}
    with pytest.raises(errors.IoError, match="No such file"), state.opened(state.QUARANTINE, environ, make=True):
        pass
    with state.opened(state.QUARANTINE, environ) as folder:
        assert folder is None
