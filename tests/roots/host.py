"""What a root takes over from the machine that makes it: the settings of apt and pip, and the paths that pip's name."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
from collections.abc import Iterable, Mapping

# How things are fetched, proxies and clocks too; not what apt shows or keeps.
_APT = re.compile(r"Acquire::(https?(::.*)?|Retries|Check-Date|Check-Valid-Until) ")
_FROM_ENVIRONMENT = ":env:."


def printed(*command: str) -> str:
    """What a command prints.

    Raises:
        SystemExit: It failed; the message has its words.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as cause:
        raise SystemExit(f"run {' '.join(command)}: {cause.strerror}") from cause
    if done.returncode:
        raise SystemExit(f"run {' '.join(command)}: it ended with {done.returncode}\n{done.stderr.strip()}")
    return done.stdout.strip()


def apt_options() -> list[str]:
    """The lines of apt's configuration here that say how packages are fetched."""
    return [line for line in printed("apt-config", "dump").splitlines() if _APT.match(line)]


def pip_settings(listing: str) -> dict[str, dict[str, str]]:
    """What ``pip config list`` printed, by section and key, without what the environment says."""
    found: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith(_FROM_ENVIRONMENT):
            section, _, key = name.partition(".")
            found.setdefault(section, {})[key] = ast.literal_eval(value)
    return found


def pip_file(settings: Mapping[str, Mapping[str, str]]) -> str:
    """The same as a pip.conf."""
    lines = []
    for section, entries in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {' '.join(value.split())}" for key, value in entries.items()]
    return "\n".join([*lines, ""])


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Pip's variables; one that names a configuration file is among the settings by then."""
    return {name: value for name, value in environ.items() if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"}


def paths_in(values: Iterable[str]) -> list[str]:
    """Files and folders here that pip's settings name; of an index, whose pages point beside it, the folder above."""
    found = set()
    for word in (word for value in values for word in value.split()):
        path = pathlib.Path(word.removeprefix("file://"))
        if word.startswith("file://") and len(path.parts) > 2:
            path = path.parent
        if path.is_absolute() and path.exists():
            found.add(str(path))
    return sorted(found)


def python_prefix(named: str | None, base: str) -> pathlib.Path:
    """The interpreter's folder that is laid into the root.

    Args:
        named: The folder that was asked for, if one was.
        base: That of the interpreter which runs this, in its place.
    Raises:
        SystemExit: It is the system's own, whose libraries stay behind, or there is no interpreter in it.
    """
    prefix = pathlib.Path(os.path.realpath(named or base))
    doing = f"lay the Python below {prefix} into the root"
    remedy = "name the folder of another in --python, one that the locks of third_party/python serve"
    if prefix in (pathlib.Path("/"), pathlib.Path("/usr"), pathlib.Path("/usr/local")):
        raise SystemExit(f"{doing}: it is a part of this system; remedy: {remedy}")
    if not os.access(prefix / "bin" / "python3", os.X_OK):
        raise SystemExit(f"{doing}: it has no bin/python3; remedy: {remedy}")
    return prefix
