"""Every code of the contract has one class, the built-in that users expect, and its exit code."""

import errno
import pickle

import pytest

import coldsnap
from coldsnap import errors

# docs/architecture.md, section 9a.
CONTRACT = {
    "request_invalid": (2, ValueError),
    "policy_refused": (3, PermissionError),
    "layout_mismatch": (3, ValueError),
    "route_unavailable": (3, RuntimeError),
    "not_admitted": (3, PermissionError),
    "quarantined": (3, PermissionError),
    "exists": (3, FileExistsError),
    "data_loss": (4, OSError),
    "format_invalid": (4, ValueError),
    "io": (5, OSError),
    "no_space": (5, OSError),
    "cuda": (5, RuntimeError),
    "out_of_memory": (5, MemoryError),
    "device_lost": (5, RuntimeError),
    "timeout": (5, TimeoutError),
    "internal": (1, RuntimeError),
    "cancelled": (130, RuntimeError),
}


def test_each_code_has_exactly_one_class() -> None:
    codes = [kind.code for kind in errors.ERROR_CLASSES]
    assert sorted(codes) == sorted(CONTRACT)
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Error)]
    assert set(classes) == {errors.Error, *errors.ERROR_CLASSES}  # none is forgotten in the table


@pytest.mark.parametrize("code", CONTRACT)
def test_from_native_gives_the_class_of_the_code(code: str) -> None:
    exit_code, built_in = CONTRACT[code]
    error = errors.from_native(code, "read 7 bytes: it rained", "read", "take an umbrella", "errno", errno.EIO)
    assert (error.code, error.exit_code) == (code, exit_code)
    assert isinstance(error, built_in)
    assert isinstance(error, coldsnap.Error)
    assert getattr(coldsnap, type(error).__name__) is type(error)
    assert str(error) == "read 7 bytes: it rained; take an umbrella"
    assert (error.message, error.stage, error.remedy) == ("read 7 bytes: it rained", "read", "take an umbrella")
    assert error.native == ("errno", errno.EIO)
    assert error.receipt is None


@pytest.mark.parametrize("code", CONTRACT)
def test_text_is_the_message_alone_without_a_remedy(code: str) -> None:
    error = errors.from_native(code, "read 7 bytes: it rained", "", "", "none", 0)
    assert str(error) == "read 7 bytes: it rained"
    assert error.native is None


@pytest.mark.parametrize("code", CONTRACT)
def test_survives_pickling(code: str) -> None:
    error = errors.from_native(code, "read 7 bytes", "read", "none known", "errno", errno.EIO)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert (again.stage, again.native) == (error.stage, error.native)


def test_os_errors_have_the_errno() -> None:
    error = errors.from_native("io", "open weights.safetensors", "open", "", "errno", errno.ENOENT)
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror) == (errno.ENOENT, "No such file or directory")
    assert str(error) == "open weights.safetensors"


def test_a_number_of_cuda_is_no_errno() -> None:
    error = errors.from_native("data_loss", "copy 7 bytes", "copy", "", "cuda", 2)
    assert isinstance(error, OSError)
    assert error.errno is None
    assert error.native == ("cuda", 2)


def test_an_unknown_code_is_an_internal_error_that_names_it() -> None:
    error = errors.from_native("from_the_future", "fly")
    assert type(error) is errors.InternalError
    assert "from_the_future" in str(error)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EIO, "io"),
        (errno.ENOENT, "io"),
        (errno.ENOSPC, "no_space"),
        (errno.EDQUOT, "no_space"),
        (errno.EFBIG, "no_space"),
        (errno.ENOMEM, "out_of_memory"),
        (errno.EEXIST, "exists"),
    ],
)
def test_from_errno_gives_the_code_that_the_core_gives(number: int, code: str) -> None:
    error = errors.from_errno(OSError(number, "as the system says"), "write 5 bytes", stage="read")
    assert error.code == code
    assert str(error) == "write 5 bytes: as the system says"
    assert error.native == ("errno", number)
