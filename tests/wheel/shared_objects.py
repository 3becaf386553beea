"""What a shared object shows and needs, and what it may need: to work in images built on Ubuntu 22.04, where it was built
on Debian 12 or older; on a newer system, that system's own C library.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

Version = tuple[int, ...]

PROMISED = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
_GLIBC_OF_DEBIAN_12 = (2, 36)

# What such a system has without any package of its own, and what stands beside our libraries (PEP 600).
_MAY_NEED = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|isal)|ld-linux-[\w-]+)\.so\.\d+")


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def glibc() -> Version:
    """The C library's version here."""
    return _version((os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1])


def newest_allowed(here: Version) -> dict[str, Version]:
    """By family, the newest symbols that may be needed of what is built where the C library is ``here``."""
    # On a newer system the C++ library is that system's as well, and the wheel's tag says nothing of it.
    return PROMISED if here <= _GLIBC_OF_DEBIAN_12 else {"GLIBC": here}


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exports(path: pathlib.Path) -> list[str]:
    """The symbols that others can see, sorted."""
    return sorted(line.split()[-1] for line in _printed("nm", "-D", "--defined-only", str(path)).splitlines())


def too_new(path: pathlib.Path) -> list[str]:
    """The symbol versions that it needs and such a system does not have."""
    allowed = newest_allowed(glibc())
    needed = set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\b", _printed("objdump", "-T", str(path))))
    assert needed, f"{path.name} needs no version of any symbol: objdump prints something else than it did"
    return sorted(
        f"{family}_{version}" for family, version in needed if family in allowed and _version(version) > allowed[family]
    )


def strangers(path: pathlib.Path) -> list[str]:
    """The libraries that it needs and such a system may lack."""
    needed = re.findall(r"^ +NEEDED +(\S+)", _printed("objdump", "-p", str(path)), re.MULTILINE)
    assert needed, f"{path.name} needs no library: objdump prints something else than it did"
    return [name for name in needed if not _MAY_NEED.fullmatch(name)]
