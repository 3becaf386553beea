"""The manifests in docs/kubernetes, as their YAML says."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

FOLDER = pathlib.Path(os.environ["RUNFILES_ROOT"], "docs", "kubernetes")
FILES = ("writer.yaml", "reader.yaml", "shared.yaml")
Spec = dict[str, Any]


def objects(file: str) -> list[Spec]:
    """The objects of a file, in order."""
    return list(yaml.safe_load_all((FOLDER / file).read_text(encoding="utf-8")))


def pods() -> Iterator[tuple[str, str, Spec]]:
    """The file, the kind and the pod's ``spec`` of every object that makes pods."""
    for file in FILES:
        for each in objects(file):
            if each["kind"] != "PersistentVolumeClaim":
                yield file, each["kind"], _template(each)


def pod(file: str, kind: str) -> Spec:
    """The pod's ``spec`` of the only object of that kind in a file."""
    (found,) = [spec for name, its_kind, spec in pods() if (name, its_kind) == (file, kind)]
    return found


def containers(spec: Spec) -> list[Spec]:
    """All containers of a pod, in the order of their starts."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def _template(each: Spec) -> Spec:
    spec = each["spec"]
    if each["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Spec = spec["template"]["spec"]
    return found
