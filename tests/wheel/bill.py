"""The bill of materials that the wheel carries."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from typing import Any

WHEEL = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["WHEEL"])


def contents() -> dict[str, bytes]:
    """Every file of the wheel, by its name there."""
    with zipfile.ZipFile(WHEEL) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def only(files: dict[str, bytes], end: str) -> bytes:
    """The one file whose name ends so."""
    (name,) = (name for name in files if name.endswith(end))
    return files[name]


def bill(files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(only(files, ".dist-info/sboms/coldsnap.cdx.json"))
    return found


def carried(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The components that are in the wheel, by name."""
    yes = {"name": "coldsnap:in_the_wheel", "value": "true"}
    return {each["name"]: each for each in found["components"] if yes in each["properties"]}
