"""Whole matrices over an engine that takes no time: order, proofs, what falls out, and going on."""

from __future__ import annotations

import itertools
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from bench import vllm_startup_matrix
from bench.startup import matrix, starts
from bench.startup.cells import CASES
from tests.startup.helpers import FAST, checkpoint, document, environment, left_in


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a matrix in this process, over a model with towers; the exit code."""
    model = checkpoint(tmp_path)

    def measure(*flags: str, **plan: Any) -> int:
        for name, value in environment(tmp_path, **plan).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("WHEEL", raising=False)
        monkeypatch.setattr(matrix, "_TEMPORARY", tmp_path / "tmp")  # it was asked for before TMPDIR was set
        given = [f"--model={model}", f"--output={tmp_path / 'out'}", *FAST, *flags]
        return vllm_startup_matrix.main(["matrix", *given])

    return measure


def samples(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [start for start in found["starts"] if start["kind"] == "sample"]


def test_all_cases(run: Any, tmp_path: Path, capsys: Any) -> None:
    assert run("--formats=auto,coldsnap", "--pages=cold,warm", "--repeats=2") == 0
    found = document(tmp_path)
    assert found["complete"]
    assert found["variables"] == {"VLLM_TEST_SETTING": "kept"} | {
        name: value for name, value in found["variables"].items() if not name.startswith("VLLM_TEST")
    }
    assert found["machine"]["versions"]["vllm"] == "0.32.0"
    assert str(tmp_path) not in json.dumps(found)

    # A round has each cell once, the second one backwards; coldsnap captured once for each case of towers.
    order = [(each["case"], each["load_format"], each["caches"], each["pages"]) for each in samples(found)]
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    assert sorted(first) == sorted(itertools.product(CASES, ("auto", "coldsnap"), ("cold", "warm"), ("cold", "warm")))
    assert second == first[::-1]
    assert "coldsnap: loading normally: there is no artifact of this model in WORK/store-full yet" in [
        line for each in found["starts"] for line in each["lines"]
    ]
    captures = [each for each in found["starts"] if any("coldsnap: captured" in line for line in each["lines"])]
    assert [each["kind"] for each in captures] == ["prepare", "prepare"]
    assert [each["number"] for each in found["starts"]] == list(range(1, len(found["starts"]) + 1))

    for start in samples(found):
        assert start["out"] is None
        assert len(start["residency_before"]) == 2  # checkpoint and artifact
        files = start["caches_before"]["VLLM_CACHE_ROOT"]["files"]
        assert files == (0 if start["caches"] == "cold" else 1)
        assert start["caches_after"]["VLLM_CACHE_ROOT"] == {"files": 1, "bytes": len("compiled")}
        assert len(start["ttft_s"]) == len(start["ids"]) == 2
        named = {phase["name"] for phase in start["phases"] if phase["start_s"] is not None}
        assert {"imports", "config", "workers", "build", "weights", "post_processing", "ready", "first_token"} <= named
        assert ("interpreter" in named) == (not start["case"].startswith("serve"))
        assert "graphs" not in named
    for cell in found["cells"]:
        assert len(cell["ready_s"]) == 2
        assert cell["out"] is None
    assert left_in(tmp_path) == []
    printed = capsys.readouterr().out
    assert f"{len(found['starts'])} starts answered with the tokens of the first start of their case" in printed
    assert printed.count("\nserve-text     coldsnap        cold   warm   2 ") == 1

    # The report, drawn at the end and once more from the results alone.
    report = (tmp_path / "out" / "report.html").read_text()
    assert all(f"startup-{case}.png" in report for case in CASES)
    results = tmp_path / "out" / "startup_matrix.json"
    assert vllm_startup_matrix.main(["matrix", f"--draw={results}", f"--output={tmp_path / 'tmp'}"]) == 0
    assert (tmp_path / "tmp" / "report.html").read_text() == report


def test_lists_in_words_and_what_is_installed(run: Any, tmp_path: Path) -> None:
    assert run("--cases", "inproc-full", "inproc-text", "--caches", "cold", "--repeats=1") == 0
    found = document(tmp_path)
    assert found["request"]["cases"] == ["inproc-full", "inproc-text"]
    assert found["request"]["formats"][:2] == ["auto", "coldsnap"]


def test_a_model_without_towers(run: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "models" / "m" / "config.json").write_text("{}")
    assert run("--cases=inproc-full,inproc-text", "--formats=auto", "--caches=cold", "--repeats=1") == 0
    found = document(tmp_path)
    assert [cell["case"] for cell in found["cells"]] == ["inproc-full"]
    assert [each["case"] for each in found["not_applicable"]] == ["inproc-text"]
    assert "not applicable: inproc-text: m has no towers" in capsys.readouterr().out


def test_the_engine_is_asked_for_no_towers(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = matrix.cells_of(["serve-text"], ["auto"], ["cold"], ["warm"])[0]
    order = starts.Order(tmp_path, {"enforce_eager": True}, [[1]], 1, 1.0, True, None)
    assert order.arguments(cell)["language_model_only"] is True
    older = starts.Order(tmp_path, {"enforce_eager": False}, [[1]], 1, 1.0, False, None)
    assert older.arguments(cell)["limit_mm_per_prompt"] == {"image": 0, "video": 0, "audio": 0}
    assert starts.options_of(older.arguments(cell))[-3:] == [
        "--no-enforce-eager",
        "--limit-mm-per-prompt",
        '{"image": 0, "video": 0, "audio": 0}',
    ]


@pytest.mark.parametrize("case", ["inproc-full", "serve-full"])
def test_an_engine_that_dies(run: Any, tmp_path: Path, case: str) -> None:
    assert run(f"--cases={case}", "--formats=auto,bad", "--caches=cold", "--repeats=2", dies="bad") == 0
    found = document(tmp_path)
    good, bad = found["cells"]
    assert (len(good["ready_s"]), good["out"]) == (2, None)
    assert bad["ready_s"] == []
    assert "exit code 1: " in bad["out"]
    assert "RuntimeError: the drive is on fire" in bad["out"]
    # One start was enough to know.
    assert len([each for each in samples(found) if each["load_format"] == "bad"]) == 1
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("case", ["multiproc-full", "serve-full"])
def test_an_engine_that_hangs(run: Any, tmp_path: Path, case: str) -> None:
    child = tmp_path / "out" / "child"
    child.parent.mkdir()
    flags = (f"--cases={case}", "--formats=bad", "--caches=cold", "--repeats=1", "--limit_s=2")
    assert run(*flags, hangs="bad", child=str(child)) == 3
    (start,) = document(tmp_path)["starts"]
    assert " 2 s: " in start["out"]
    # It had got as far as this, and what it started went with it.
    assert start["marks"]["configured"]["source"] == "log"
    assert not is_running(int(child.read_text()))
    assert left_in(tmp_path) == []


def test_a_port_in_use(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(starts, "free_port", lambda wanted: port)
        assert run("--cases=serve-full", "--formats=auto", "--caches=cold", "--repeats=1") == 3
    (start,) = document(tmp_path)["starts"]
    assert "it was never ready: exit code 1: " in start["out"]
    assert "Address already in use" in start["out"]


def test_other_tokens_are_an_error(run: Any, tmp_path: Path, capsys: Any) -> None:
    assert run("--cases=inproc-full", "--formats=odd,auto", "--caches=cold", "--repeats=1", other="odd") == 4
    stderr = capsys.readouterr().err
    assert stderr.startswith("OTHER TOKENS: start 1, inproc-full odd: ")
    assert len(stderr.splitlines()) == 1


def test_coldsnap_that_does_not_restore_is_no_sample(run: Any, tmp_path: Path) -> None:
    flags = ("--cases=inproc-full", "--formats=auto,coldsnap", "--caches=cold", "--repeats=1")
    assert run(*flags, captures=False) == 0
    auto, ours = document(tmp_path)["cells"]
    assert len(auto["ready_s"]) == 1
    assert ours["ready_s"] == []
    assert ours["out"].startswith("it neither captured nor restored: coldsnap: loading normally: there is no artifact")


def test_a_sample_has_to_restore_like_those_before_it(run: Any, tmp_path: Path) -> None:
    flags = ("--cases=inproc-full", "--formats=coldsnap", "--caches=cold", "--repeats=3")
    assert run(*flags, restores=2) == 0
    found = document(tmp_path)
    (ours,) = found["cells"]
    # The first restore prepared, the second one was a sample.
    assert [each["out"] is None for each in found["starts"]] == [True, True, True, False]
    assert len(ours["ready_s"]) == 1
    assert ours["out"] == (
        "it did not restore: coldsnap: loading normally: the artifact in the store is under quarantine"
    )


@pytest.mark.parametrize(("case", "processes"), [("inproc-full", "0"), ("multiproc-full", "1"), ("serve-full", "1")])
def test_processes_of_the_engine(run: Any, case: str, processes: str) -> None:
    assert run(f"--cases={case}", "--formats=auto", "--caches=cold", "--repeats=1", processes=processes) == 0


def test_a_page_cache_that_can_not_be_proved_is_no_sample(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(starts._PAGES, "cold", (lambda path: 0.5, starts.cache.is_cold))
    flags = ("--cases=inproc-full", "--formats=auto", "--caches=cold", "--pages=cold", "--repeats=1")
    assert run(*flags) == 0
    (cell,) = document(tmp_path)["cells"]
    assert cell["ready_s"] == []
    assert cell["out"] == "the page cache could not be made cold: resident [0.5]"


def test_the_minutes_end_it_and_resume_goes_on(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--cases=inproc-full", "--formats=auto,coldsnap", "--repeats=2", f"--work={tmp_path / 'out' / 'work'}")

    class Clock:
        """25 seconds pass between any two looks."""

        now_s = 0.0

        def monotonic(self) -> float:
            self.now_s += 25
            return self.now_s

    with monkeypatch.context() as patch:
        patch.setattr(matrix, "time", Clock())
        assert run(*flags, "--minutes=4") == 0
    partial = document(tmp_path)
    assert (partial["complete"], partial["ended"]) == (False, "the 4 minutes of --minutes are over")
    # They begin 25, 75, 125 and 175 s after the first look and take 25 s; one more would end after 250.
    assert len(partial["starts"]) == 4

    assert run(*flags, "--minutes=4", "--resume") == 0
    whole = document(tmp_path)
    assert (whole["complete"], whole["ended"]) == (True, None)
    assert whole["starts"][: len(partial["starts"])] == partial["starts"]
    assert [len(cell["ready_s"]) for cell in whole["cells"]] == [2, 2, 2, 2]
    # What was prepared in the folder that is kept is not prepared again.
    prepared = [(each["load_format"]) for each in whole["starts"] if each["kind"] == "prepare"]
    assert prepared == ["auto", "coldsnap", "coldsnap"]
    # Nothing is started for what is complete, and other starts have artifacts and caches of their own.
    assert run(*flags, "--resume") == 0
    assert document(tmp_path) == whole
    assert run(*flags, '--engine={"seed": 1}') == 0
    assert [each["kind"] for each in document(tmp_path)["starts"]][:4] == ["prepare"] * 3 + ["sample"]
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("flag", "says"),
    [("--tokens=4", "request.tokens was 3 and is 4"), ("--commit=" + "0" * 40, "commit was ")],
)
def test_resume_refuses_another_run(run: Any, tmp_path: Path, capsys: Any, flag: str, says: str) -> None:
    flags = ("--cases=inproc-full", "--formats=auto", "--caches=cold", "--repeats=1")
    assert run(*flags) == 0
    before = document(tmp_path)
    assert run(*flags, flag, "--resume") == 2
    assert says in capsys.readouterr().err
    assert document(tmp_path) == before


def test_resume_refuses_what_is_no_document(run: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "startup_matrix.json").write_text("{}")
    assert run("--cases=inproc-full", "--formats=auto", "--resume") == 2
    assert "it is no startup_matrix.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--cases=inproc-half", "read --cases: 'inproc-half' is not known"),
        ("--cases=", "read --cases: the list is empty"),
        ("--caches=cold,cold", "read --caches: 'cold' stands there twice"),
        ("--pages=half", "read --pages: 'half' is not known"),
        ("--engine=[]", "read --engine=[]: it is no object"),
        ("--engine={", "read --engine={: "),
        ("--repeats=0", "read --repeats=0"),
        ("--model=nowhere", "read --model=nowhere: it is no folder"),
        ("--draw=nowhere", "draw "),
        ("--minutes=soon", "read --minutes=soon"),
    ],
)
def test_refusals(run: Any, capsys: Any, flag: str, says: str) -> None:
    assert run(flag) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert len(stderr.splitlines()) == 1


def test_resume_needs_results_to_go_on_with(capsys: Any) -> None:
    assert vllm_startup_matrix.main(["matrix", "--resume"]) == 2
    assert vllm_startup_matrix.main(["matrix", "--draw=x"]) == 2
    one, two = capsys.readouterr().err.splitlines()
    assert "there is no --output to go on with" in one
    assert "there is no --output to draw to" in two


def test_a_python_without_vllm(run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(matrix.survey, "__file__", "/nowhere/survey.py")
    assert run("--cases=inproc-full") == 5
    stderr = capsys.readouterr().err
    assert "ask vLLM what it is, by " in stderr
    assert "can't open file '/nowhere/survey.py'" in stderr


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
