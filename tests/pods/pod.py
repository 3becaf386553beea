"""Pods of the manifests in docs/kubernetes, in namespaces: what a kubelet and a container runtime make of them.

    cluster = Cluster(folder, unwind)
    pod = cluster.pod(manifests.pod("reader.yaml", "Deployment"))
    done = pod.run("serve")

A field that is neither imitated here nor listed as one that a namespace can't imitate is refused, so a manifest says nothing
that the tests pass over. Needs root; where namespaces or mounts are refused the test is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.trust.file_systems import own_mounts

Spec = dict[str, Any]
_ENTER = ("--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
_POD = {"containers", "initContainers", "restartPolicy", "securityContext", "volumes"}
_CONTAINER = {"args", "command", "env", "name", "securityContext", "volumeMounts"}
# A node's business: which image, which node, how much of it, and when to ask whether the container lives.
_NOT_IMITATED = {
    *(
        "image",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resources",
        "startupProbe",
        "terminationGracePeriodSeconds",
    ),
    "activeDeadlineSeconds",
}
_POD_SECURITY = {"fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"}
_SECURITY = {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_LIMIT_S = 60
_KERNEL = (5, 12)  # has mount_setattr
_PYTHON = "/opt/python"  # where containers have the environment of the tests, a venv
_PROGRAMS = {
    "coldsnap": 'exec python3 -m coldsnap.cli "$@"',
    "python3": f'exec {_PYTHON}/bin/python "$@"',
    # vLLM's own command asks for the version of a package `vllm`, and the CPU build has another name.
    "vllm": 'test "$1" = serve && model="$2" && shift 2 && '
    'exec python3 -m vllm.entrypoints.openai.api_server --model "$model" "$@"',
}


class Done(NamedTuple):
    """How a container ended: its exit status, and what it printed, errors too."""

    status: int
    output: str


class Cluster:
    """What pods share: a container image with Python, the wheel and vLLM where this environment has it, claims, images.

    Attributes:
        folder: Of all that pods keep.
        claims: The folder of each persistent volume claim.
        images: The folder of each image that is a volume, by its reference.
    """

    def __init__(self, folder: pathlib.Path, unwind: contextlib.ExitStack) -> None:
        if os.geteuid():
            pytest.skip("pods are made by root")
        if tuple(map(int, os.uname().release.split(".")[:2])) < _KERNEL:
            pytest.skip(f"Linux {os.uname().release} can't make mounts read-only all the way down")
        own_mounts()
        done = subprocess.run(["unshare", *_ENTER, "true"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"namespaces: {done.stderr.strip()}")
        self.folder, self.unwind = folder, unwind
        self.claims: dict[str, pathlib.Path] = {}
        self.images: dict[str, pathlib.Path] = {}
        self._count = 0
        self.image = folder / "image"
        with zipfile.ZipFile(pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["WHEEL"])) as wheel:
            wheel.extractall(self.image / "packages")
        (self.image / "bin").mkdir()
        for name, command in _PROGRAMS.items():
            program = self.image / "bin" / name
            program.write_text(f"#!/bin/sh\n{command}\n")
            program.chmod(0o755)

    def claim(self, name: str) -> pathlib.Path:
        """A persistent volume of that name, new and empty where it isn't there."""
        if name not in self.claims:
            self.claims[name] = self.made(f"claim-{name}", 0o755)
        return self.claims[name]

    def pod(self, spec: Spec, *, environment: Mapping[str, str | None] | None = None) -> Pod:
        """A pod from a manifest's ``spec``; ``environment`` is set, or taken away by None, in all of its containers."""
        self._count += 1
        return Pod(self, f"pod-{self._count}", spec, environment or {})

    def tmpfs(self, name: str, options: str) -> pathlib.Path:
        """A folder in memory, until all is over; nobody else sees it."""
        folder = self.made(name, 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        self.unwind.callback(subprocess.run, ["umount", "--lazy", folder], check=True)
        return folder

    def made(self, name: str, mode: int) -> pathlib.Path:
        """A new folder."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        folder.chmod(mode)
        return folder


class Pod:
    """One pod: its volumes, which its containers share and which outlive their restarts."""

    def __init__(self, cluster: Cluster, name: str, spec: Spec, environment: Mapping[str, str | None]) -> None:
        _require_known(spec, _POD, f"pod {name}")
        self._cluster, self._name, self._spec, self._environment = cluster, name, spec, environment
        self._security = spec["securityContext"]
        _require_known(self._security, _POD_SECURITY, "the pod's securityContext")
        self.volumes = {volume["name"]: self._volume(volume) for volume in spec["volumes"]}
        self._count = 0

    def upper(self, count: int) -> pathlib.Path:
        """What the container of that number, from 1, wrote beside its volumes: the upper layer of its root."""
        return self._cluster.folder / f"{self._name}-root-{count}" / "upper"

    def run(self, container: str, *more: str, command: Sequence[str] = (), limit_s: float = _LIMIT_S) -> Done:
        """Run a container to its end, with ``more`` arguments or another command."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self.running(container, *more, command=command, **streams) as process:
            output, _ = process.communicate(timeout=limit_s)
        return Done(process.returncode, output.decode(errors="replace"))

    @contextlib.contextmanager
    def running(
        self, container: str, *more: str, command: Sequence[str] = (), **streams: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The same while the block lasts, with which all of the container's processes end."""
        self._count += 1
        layers = self._cluster.tmpfs(f"{self._name}-root-{self._count}", "mode=755")
        (layers / "upper").mkdir()
        order = layers / "container.json"
        order.write_text(json.dumps(self._order(container, list(more), command, layers)))
        enter = os.path.join(os.environ["RUNFILES_ROOT"], "tests", "pods", "enter.py")
        with subprocess.Popen(["unshare", *_ENTER, sys.executable, enter, str(order)], **streams) as process:
            try:
                yield process
            finally:
                end(process, signal.SIGKILL)

    def _order(self, name: str, more: list[str], command: Sequence[str], layers: pathlib.Path) -> dict[str, Any]:
        every = [*self._spec.get("initContainers", []), *self._spec["containers"]]
        (found,) = [container for container in every if container["name"] == name]
        _require_known(found, _CONTAINER, f"container {name}")
        security = found["securityContext"]
        _require_known(security, _SECURITY, f"the securityContext of {name}")
        kinds = {volume["name"]: volume for volume in self._spec["volumes"]}
        mounts = []
        for each in found["volumeMounts"]:
            _require_known(each, {"name", "mountPath", "readOnly"}, f"a mount of {name}")
            read_only = each.get("readOnly", False) or "image" in kinds[each["name"]]
            mounts.append([str(self.volumes[each["name"]]), each["mountPath"], read_only])
        fs_group = self._security.get("fsGroup")
        return {
            "command": [*(command or [*found["command"], *found.get("args", [])]), *more],
            "environment": self._variables(found),
            "group": self._security["runAsGroup"],
            "groups": [] if fs_group is None else [fs_group],
            "image": self._image(),
            "layers": str(layers),
            "mounts": mounts,
            "no_new_privileges": not security["allowPrivilegeEscalation"],
            "read_only": security["readOnlyRootFilesystem"],
            "user": self._security["runAsUser"],
        }

    def _variables(self, container: Spec) -> dict[str, str]:
        # A runtime gives / to whom the image's passwd doesn't know.
        found: dict[str, str | None] = {
            "HOME": "/",
            "LC_ALL": "C.UTF-8",
            "PATH": "/opt/image/bin:/usr/bin:/bin",
            "PYTHONPATH": "/opt/image/packages",
            "PYTHONSAFEPATH": "1",
        }
        found |= {each["name"]: each["value"] for each in container.get("env", [])}
        found |= self._environment
        return {name: value for name, value in found.items() if value is not None}

    def _image(self) -> list[list[Any]]:
        """The folders of the container's image: the system's programs, this environment's Python, and the wheel."""
        found = [["/usr", "/usr", True], [sys.prefix, _PYTHON, True], [str(self._cluster.image), "/opt/image", True]]
        if not pathlib.Path(sys.base_prefix).is_relative_to("/usr"):
            found.append([sys.base_prefix, sys.base_prefix, True])
        return found

    def _volume(self, volume: Spec) -> pathlib.Path:
        (kind,) = volume.keys() - {"name"}
        given, fs_group = volume[kind], self._security.get("fsGroup")
        if kind == "image":
            return self._cluster.images[given["reference"]]
        if kind == "persistentVolumeClaim":
            folder = self._cluster.claim(given["claimName"])
            if fs_group is not None:
                apply_fs_group(folder, fs_group, self._security.get("fsGroupChangePolicy", "Always"))
            return folder
        if kind != "emptyDir":
            raise AssertionError(f"volume {volume['name']}: nobody imitates {kind}")
        return self._empty_dir(volume["name"], given, fs_group)

    def _empty_dir(self, name: str, given: Spec, fs_group: int | None) -> pathlib.Path:
        name = f"{self._name}/volumes/kubernetes.io~empty-dir/{name}"  # as a kubelet's folder is called
        if given.get("medium") == "Memory":
            folder = self._cluster.tmpfs(name, f"mode=777,size={size(given['sizeLimit'])}")
        else:
            folder = self._cluster.made(name, 0o777)
        if fs_group is not None:
            apply_fs_group(folder, fs_group, "Always")
        return folder


def apply_fs_group(folder: pathlib.Path, group: int, policy: str) -> None:
    """What a kubelet does to a volume that it mounts for a pod: its group, and the group's rights, all the way down.

    Source: the Kubernetes documentation of ``fsGroup`` and ``fsGroupChangePolicy``; pkg/volume/volume_linux.go.
    """
    wanted = stat.S_ISGID | 0o770
    info = folder.stat()
    if policy == "OnRootMismatch" and info.st_gid == group and info.st_mode & wanted == wanted:
        return
    for path in (*folder.rglob("*"), folder):
        if path.is_symlink():
            continue
        os.chown(path, -1, group)
        path.chmod(stat.S_IMODE(path.stat().st_mode) | (wanted if path.is_dir() else 0o660))


def size(quantity: str) -> int:
    """The bytes of a Kubernetes quantity, as far as the manifests have them."""
    found = re.fullmatch(r"(\d+)([KMGT]i)", quantity)
    assert found is not None, quantity
    return int(found[1]) * _UNITS[found[2]]


def listing(*folders: pathlib.Path) -> list[str]:
    """Everything in the folders with its size and its time, to be compared."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            info = path.lstat()
            found.append(f"{path} {info.st_size} {info.st_mtime_ns}")
    return found


def end(process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGTERM) -> int:
    """Send a signal to the first process of a running container, as a kubelet does; its exit status.

    Raises:
        subprocess.TimeoutExpired: It goes on.
    """
    if process.poll() is None:
        # `unshare` ends once that process and all others of the namespace are gone.
        for child in children_of(process.pid) or [process.pid]:
            os.kill(child, by)
    return process.wait(_LIMIT_S)


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that are there; none once it has ended."""
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _require_known(spec: Spec, known: set[str], what: str) -> None:
    unknown = spec.keys() - known - _NOT_IMITATED
    assert not unknown, f"{what}: nobody imitates {sorted(unknown)}"
