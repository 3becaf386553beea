"""Builds and tests a clean checkout in a fresh root of Debian testing, with that system's Bazel, compiler and C library:

    ./bazelw run //tests/roots:debian_testing
    ./bazelw run //tests/roots:debian_testing -- --rules_cuda=REPOSITORY

`./bazelw test //...` runs there twice; the second time nothing may run but what is tagged `external`. What came out
goes to tests/roots/results.json, and into docs/toolchains.md by ``./bazelw run //tests/docs:update``. Needs root and
mmdebstrap; all that it makes is gone at the end, also after a signal.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from coldsnap._bench import machine
from tests.roots import host, results
from tests.roots.root import CHECKOUT, HOME, Bind, Root, scratch_folder
from tools.ci.summary import targets_of

_RULES_CUDA = "/opt/rules_cuda"
# Debian's copies of what the published rules load; Bazel itself depends on their packages.
_SKYLIB, _PLATFORMS = "/usr/share/bazel/tools/skylib", "/usr/share/bazel/tools/platforms"
# The wheel with the module that those rules linked: what it needs, and that it imports and restores.
_RULES_CUDA_TESTS = "//tests/wheel/... //tests/api/..."
_BAZEL = """
status=0
./bazelw {command} --noshow_progress --color=no --keep_going --build_event_json_file={events} {words} || status=$?
./bazelw shutdown
exit $status
"""

# The one that Bazel found, whatever else is installed.
_COMPILER = """
"$(grep -ho '"gcc": "[^"]*"' $HOME/.cache/bazel/*/*/external/local_config_cc/BUILD | cut -d '"' -f 4)" -dumpfullversion
"""


class Run:
    """The steps in one root, and the seconds that each took."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says that a step begins, and keeps how long it took."""
        print(f"=== {name}", flush=True)
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 1)
        print(f"=== {name}: {self.seconds[name]:.0f} s", flush=True)

    def bazel(self, step: str, command: str, words: str) -> str:
        """Runs Bazel in the checkout; what it recorded. That targets failed stands there, and is no error here.

        Raises:
            SystemExit: It recorded nothing.
        """
        file = f"{HOME}/{step.replace(' ', '-')}.json"
        with self.step(step):
            status = self.root.run(_BAZEL.format(command=command, events=file, words=words))
        events = self.root.at(file)
        if not events.is_file():
            raise SystemExit(f"{step}: Bazel ended with {status} before it recorded anything; see its words above")
        return events.read_text(encoding="utf-8")

    def tests(self, step: str, words: str, summed: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """The same for tests, of which ``summed`` makes what the results keep."""
        return summed(targets_of(self.bazel(step, "test", words), self.root.folder))


def flags_of(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", help="folder of the interpreter to be laid in (the one of Bazel's environment here)"
    )
    parser.add_argument(
        "--rules_cuda", type=pathlib.Path, help="git repository with the published rules_cuda, to build with them, too"
    )
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="where the root is made")
    return parser.parse_args(arguments)


def work_tree() -> pathlib.Path:
    """The checkout whose HEAD is tested.

    Raises:
        SystemExit: It is not known, or this machine can't make roots.
    """
    where = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not where:
        raise SystemExit("find the work tree: none is known; remedy: ./bazelw run //tests/roots:debian_testing")
    if os.geteuid():
        raise SystemExit("make a root of Debian testing: only root can; remedy: run this as root")
    if not shutil.which("mmdebstrap"):
        raise SystemExit("make a root of Debian testing: mmdebstrap is missing; remedy: apt-get install mmdebstrap")
    if host.printed("git", "-C", where, "status", "--porcelain", "--untracked-files=no"):
        print("debian_testing: what is not committed is left out", flush=True)
    return pathlib.Path(where)


def new_root(scratch: pathlib.Path, prefix: pathlib.Path) -> Root:
    """A root that isn't made yet, with the Python of ``prefix`` and what pip is told here."""
    pip = host.pip_settings(host.printed(sys.executable, "-m", "pip", "config", "list"))
    environment = host.pip_environment(os.environ)
    values = [value for entries in pip.values() for value in entries.values()]
    cache = pathlib.Path(host.printed(sys.executable, "-m", "pip", "cache", "dir"))
    cache.mkdir(parents=True, exist_ok=True)
    binds: list[Bind] = [(path, path, True) for path in host.paths_in([*values, *environment.values()])]
    binds += [(str(prefix), str(prefix), True), (str(cache), f"{HOME}/.cache/pip", False)]
    # CI: bazelw brings the programs without which tests are skipped.
    environment |= {"CI": "true", "COLDSNAP_PYTHON": str(prefix / "bin" / "python3")}
    root = Root(scratch, binds, environment)
    root.files["/etc/pip.conf"] = host.pip_file(pip)
    return root


def lay_in_rules(repository: pathlib.Path, work_tree: pathlib.Path, root: Root) -> dict[str, Any]:
    """Puts the pinned release of the published rules into the root; its tag and commit."""
    pins = (work_tree / "third_party" / "repositories.bzl").read_text(encoding="utf-8")
    found = re.search(r'strip_prefix = "rules_cuda-(v[\d.]+)"', pins)
    assert found, "third_party/repositories.bzl pins no rules_cuda"
    tag = found[1]
    commit = host.printed("git", "-C", str(repository), "rev-parse", f"{tag}^{{commit}}")
    root.at(_RULES_CUDA).mkdir(parents=True)
    archive = subprocess.run(["git", "-C", repository, "archive", commit], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", root.at(_RULES_CUDA)], input=archive.stdout, check=True)
    return {"tag": tag, "commit": commit}


def with_published_rules(run: Run, laid_in: dict[str, Any]) -> dict[str, Any]:
    """Builds everything with the published rules_cuda, and tests the wheel that comes of it."""
    overrides = {"rules_cuda": _RULES_CUDA, "bazel_skylib": _SKYLIB, "platforms": _PLATFORMS}
    words = " ".join(f"--override_repository={name}={folder}" for name, folder in overrides.items())
    words = f"--config=real_rules_cuda {words}"
    events = run.bazel("rules_cuda build", "build", f"{words} //...")
    built = [event for event in map(json.loads, events.splitlines()) if "targetCompleted" in event["id"]]
    failed = [each["id"]["targetCompleted"]["label"] for each in built if not each.get("completed", {}).get("success")]
    return {
        **laid_in,
        "build": {"targets": len(built), "failed_targets": failed},
        "tested": _RULES_CUDA_TESTS,
        "tests": run.tests("rules_cuda tests", f"{words} {_RULES_CUDA_TESTS}", results.tested),
    }


def system_of(root: Root) -> dict[str, str]:
    """What the root built with."""
    package = "dpkg-query --showformat='${Version}' --show"
    return {
        "suite": "testing",
        "Bazel": root.says(f"{package} bazel-bootstrap"),
        "g++": root.says(_COMPILER),
        "glibc": root.says(f"{package} libc6:$(dpkg --print-architecture)"),
        "Python": root.says("$COLDSNAP_PYTHON -c 'import platform; print(platform.python_version())'"),
    }


def steps(flags: argparse.Namespace, top: pathlib.Path, scratch: pathlib.Path) -> dict[str, Any]:
    """All of it; what the results file keeps."""
    root = new_root(scratch, host.python_prefix(flags.python, sys.base_prefix))
    run = Run(root)
    with run.step("root"):
        root.make("testing")
    with run.step("packages"):
        host.printed("git", "clone", "--quiet", "--no-hardlinks", str(top), str(root.at(CHECKOUT)))
        if root.run("./bazelw --version"):
            raise SystemExit("install what ./bazelw needs: it failed; see its words above")
    laid_in = lay_in_rules(flags.rules_cuda, top, root) if flags.rules_cuda else None
    tests = run.tests("tests", "//...", results.tested)
    again = run.tests("again", "//...", results.again)
    return {
        "format": results.FORMAT,
        "commit": host.printed("git", "-C", str(root.at(CHECKOUT)), "rev-parse", "HEAD"),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": {
            key: value
            for key, value in machine.machine_record("host", None).items()
            if key in ("cpu", "cores", "kernel")
        },
        "system": system_of(root),
        "tests": tests,
        "again": again,
        "rules_cuda": with_published_rules(run, laid_in) if laid_in else None,
        "seconds": run.seconds,
    }


def main(arguments: list[str]) -> int:
    """Runs all of it and writes the results; the exit status."""
    flags = flags_of(arguments)
    top = work_tree()
    with scratch_folder(flags.folder) as scratch:
        found = steps(flags, top, scratch)
    target = top / "tests" / "roots" / "results.json"
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(results.table(found), results.skips_table(found), sep="\n")
    wrong = results.problems(found)
    for each in wrong:
        print(f"FAILED: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
