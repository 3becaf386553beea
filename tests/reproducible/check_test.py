"""The check itself: it says what differs and what ran again, keeps nothing then, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.reproducible import check

# Stands in for Bazel: makes the files, and events of two tests, one of them external.
BAZELW = """#!/bin/bash
set -e
shift; command="$1"; shift
echo "$command $*" >>"$LOG"
[[ $command != shutdown ]] || exit 0
if [[ $command == test ]]; then
  [[ $1 == --build_event_json_file=* ]]; out="${1#*=}"
  kept=false; [[ $out == *-1.json ]] || kept="$KEPT"
  {
    echo '{"id":{"targetConfigured":{"label":"//t:e"}},"configured":{"tag":["external"]}}'
    echo '{"id":{"testResult":{"label":"//t:e"}},"testResult":{}}'
    echo '{"id":{"testResult":{"label":"//t:n"}},"testResult":{"cachedLocally":'$kept'}}'
    for test in e n; do
      echo '{"id":{"testSummary":{"label":"//t:'$test'"}},"testSummary":{"overallStatus":"PASSED"}}'
    done
  } | grep "${TESTS-.}" >"$out" || true
  exit 0
fi
mkdir -p .build/bin/py .build/bin/cc/abi
text=same; [[ -z $LEAKS ]] || text="$PWD"
echo "$text" >.build/bin/py/coldsnap-1-py3-none-any.whl
echo bill >.build/bin/py/coldsnap.cdx.json
cp committed .build/bin/cc/abi/libcoldsnap_hydration.so
"""


class Tree:
    """A work tree of git's with a Bazel of the test's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.top, self.log, self.temporary = folder / "tree", folder / "log", folder / "tmp"
        self.temporary.mkdir()
        self.top.mkdir()
        (self.top / "bazelw").write_text(BAZELW)
        (self.top / "bazelw").chmod(0o755)
        (self.top / "committed").write_text("committed\n")
        (self.top / "tests" / "reproducible").mkdir(parents=True)
        self.results = self.top / "tests" / "reproducible" / "results.json"
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "--quiet", "--message=one")
        (self.top / "committed").write_text("not committed\n")

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", "-C", self.top, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr(check.tempfile, "tempdir", str(made.temporary))
    for name, value in {"BUILD_WORKSPACE_DIRECTORY": made.top, "LOG": made.log, "KEPT": "true", "LEAKS": ""}.items():
        monkeypatch.setenv(name, str(value))
    return made


def test_it_keeps_what_came_out(tree: Tree) -> None:
    assert check.main(["--write", "--tests", "//t:all"]) == 0
    found = json.loads(tree.results.read_text())
    assert found["commit"] == tree.git("rev-parse", "HEAD").strip()
    assert [each["label"] for each in found["artifacts"]] == list(check.ARTIFACTS)
    assert found["artifacts"][2]["nbytes"] == len("committed\n")  # the commit, and not the work tree
    assert {key: found["tests"][key] for key in ("targets", "external")} == {
        "targets": ["//t:all"],
        "external": ["//t:e"],
    }
    assert [(found["tests"][run]["ran"], found["tests"][run]["kept"]) for run in ("first", "second")] == [
        (2, 0),
        (1, 1),
    ]
    assert [line.split()[0] for line in tree.log.read_text().splitlines()] == ["build", "build", "test", "test"]
    assert list(tree.temporary.iterdir()) == []
    assert "| `//py:wheel` | `coldsnap-1-py3-none-any.whl` | 5 | `" in check.table(found)


def test_a_path_in_a_file_is_found(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEAKS", "1")
    assert check.main(["--write"]) == 1
    printed = capsys.readouterr().out
    assert "//py:wheel: " in printed
    assert "/a/coldsnap" in printed
    assert "check: 1 things are not as they should be" in printed
    assert not tree.results.exists()
    assert list(tree.temporary.iterdir()) == []


def test_a_test_that_runs_again_is_found(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEPT", "false")
    assert check.main(["--write"]) == 1
    assert "\n//t:n ran again, though nothing had changed and it is not external\n" in capsys.readouterr().out
    assert not tree.results.exists()


def test_a_run_without_tests_shows_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TESTS", "targetConfigured")
    assert check.main(["--write", "--tests", "//t:all"]) == 2
    assert capsys.readouterr().err.endswith("test //t:all: no test is in the build events\n")
    assert not tree.results.exists()


def test_stopped_it_leaves_nothing(tree: Tree, tmp_path: pathlib.Path) -> None:
    begun = tmp_path / "begun"
    (tree.top / "bazelw").write_text(
        f'#!/bin/bash\n[[ $2 != shutdown ]] || exit 0\nmkdir -p "${{1#*=}}"\ntouch {begun}\nexec sleep 600\n'
    )
    tree.git("-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "--all", "--quiet", "--message=two")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tree.temporary)}
    with subprocess.Popen([sys.executable, check.__file__], env=environ) as running:
        while running.poll() is None and not begun.exists():
            time.sleep(0.01)
        running.terminate()
        assert running.wait(60) == 128 + signal.SIGTERM
    assert list(tree.temporary.iterdir()) == []


def test_a_build_that_fails_is_no_result(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.git("rm", "--quiet", "--cached", "committed")
    tree.git("-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "--quiet", "--message=two")
    assert check.main(["--write"]) == 2
    assert "check: Command " in capsys.readouterr().err
    assert not tree.results.exists()
    assert list(tree.temporary.iterdir()) == []
