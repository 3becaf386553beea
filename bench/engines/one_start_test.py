"""What is kept of a start: the last answer, whole, also where the start then failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(os.environ["RUNFILES_ROOT"], "bench", "engines", "one_start.py")


def start(folder: Path, subject: str) -> subprocess.CompletedProcess[str]:
    (folder / "subject.py").write_text(subject)
    (folder / "request.json").write_text(json.dumps({"count": 3}))
    files = (str(folder / name) for name in ("subject.py", "request.json", "answer.json"))
    command = [sys.executable, str(_PROGRAM), *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_last_answer_stays(tmp_path: Path) -> None:
    done = start(tmp_path, "def run(request):\n    yield from ({'n': n} for n in range(request['count']))\n")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "answer.json").read_text()) == {"n": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.json", "request.json", "subject.py"]


def test_what_was_answered_before_a_failure_stays(tmp_path: Path) -> None:
    done = start(tmp_path, "def run(request):\n    yield {'n': 0}\n    raise ValueError('out of order')\n")
    assert done.returncode == 1
    assert "ValueError: out of order" in done.stderr
    assert json.loads((tmp_path / "answer.json").read_text()) == {"n": 0}


def test_a_process_of_the_subjects_own_imports_no_subject_again(tmp_path: Path) -> None:
    """As an engine's processes do, which spawn: what a subject does when it is loaded is done once."""
    subject = (
        "import multiprocessing, os\n"
        "with open(os.path.join(os.path.dirname(__file__), 'loaded'), 'a') as log:\n    log.write('x')\n"
        "def run(request):\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print, args=('spawned',))\n"
        "    child.start()\n    child.join()\n    yield {'code': child.exitcode}\n"
    )
    done = start(tmp_path, subject)
    assert done.returncode == 0, done.stderr
    assert "spawned" in done.stdout
    assert json.loads((tmp_path / "answer.json").read_text()) == {"code": 0}
    assert (tmp_path / "loaded").read_text() == "x"
