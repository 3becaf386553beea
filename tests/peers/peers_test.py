"""The comparison of loaders: rounds, integrity, reasons, peers.json. All on the host, over small files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bench import peers, peers_bundle
from bench.loaders import integrity, measure
from bench.loaders.base import Loader
from bench.loaders.process import LoaderError, Process
from bench.loaders.safetensors import Safetensors
from coldsnap._bench import cache, ceilings

ODD = "tests.peers.odd_loaders:"
HONEST = "bench.loaders.safetensors:Safetensors"
OURS = "bench.loaders.ours:Coldsnap"


def compare(folder: Path, *given: str, loaders: tuple[str, ...] = (OURS, HONEST)) -> int:
    where = [] if any(flag.startswith("--path") for flag in given) else [f"--path={folder}"]
    flags = ["--device=host", "--bytes=4MiB", "--samples=2", f"--output={folder / 'out'}", *where, *given]
    return peers.main(["peers", *flags], loaders)


def results(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "out" / "peers.json").read_text())
    return document


def test_a_comparison(tmp_path: Path, capsys: Any) -> None:
    assert compare(tmp_path, loaders=(OURS, ODD + "Absent", HONEST)) == 0
    printed = capsys.readouterr().out
    assert "absent is not measured: ModuleNotFoundError: No module named 'nobody_has_this'" in printed.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # the blob is gone

    document = results(tmp_path)
    assert list(document) == [
        *("format", "commit", "machine", "seed", "payload_bytes", "ceilings", "cases", "content", "loaders")
    ]
    assert document["payload_bytes"] == 4 << 20
    assert document["machine"]["versions"]["torch"] == torch.__version__
    assert str(tmp_path) not in json.dumps(document)

    ours, absent, theirs = document["loaders"]
    assert (ours["name"], ours["checks"], ours["out"]) == ("coldsnap", "all, crc32 and sha256t", None)
    assert (theirs["name"], theirs["package"], theirs["checks"]) == ("safetensors", "safetensors", "none")
    assert ours["first_s"] > 0
    assert theirs["start_s"] > 0
    assert absent["out"] == "ModuleNotFoundError: No module named 'nobody_has_this'"
    assert absent["first_s"] is None

    cases = document["cases"]
    names = [(case["loader"], case["cache"] if case["cache"] != "mixed" else None) for case in cases]
    assert [loader for loader, _ in names] == ["coldsnap", "safetensors"] * 2
    assert {state for _, state in names[2:]} == {"warm"}
    for case in cases:
        assert len(case["samples_s"]) == 2
        assert min(case["samples_s"]) > 0
        assert len(case["residency_before"]) == len(case["residency_after"]) == 2
        assert case["bytes_per_second"] == pytest.approx(document["payload_bytes"] / case["median_s"], rel=1e-3)
    bounds = {each["name"]: each["median"] for each in document["ceilings"]}
    warm = cases[-1]
    assert warm["ceiling"].startswith("page_cache_read.")
    assert warm["ratio"] == pytest.approx(warm["bytes_per_second"] / bounds[warm["ceiling"]], rel=1e-2)


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ("WrongByte", " of layers.0.weight is "),
        ("WrongAndStuck", " of layers.0.weight is "),
        ("Stale", " is 255, not "),
        ("Forgetful", "norms.03.weight is missing"),
    ],
)
def test_a_wrong_byte_fails_the_run(tmp_path: Path, capsys: Any, loader: str, says: str) -> None:
    assert compare(tmp_path, loaders=(ODD + loader, HONEST)) == 4
    printed = capsys.readouterr()
    loud = [line for line in printed.out.splitlines() if line.startswith("WRONG BYTES: ")]
    assert len(loud) == 1
    assert says in loud[0]
    assert says in printed.err
    document = results(tmp_path)
    wrong, honest = document["loaders"]
    assert says in wrong["wrong"]
    assert wrong["out"].startswith(("cold sample 1: WRONG", "first load: WRONG"))
    assert honest["wrong"] is None
    # The load that gave it is no sample, and no later one was taken.
    assert [case["loader"] for case in document["cases"]] == ["safetensors", "safetensors"]


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ("Crashing", "first load: its process was ended by SIGABRT: about to crash"),
        ("Unprintable", "first load: RuntimeError: no such thing as weights.safetensors"),
    ],
)
def test_a_loader_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: Any, loader: str, says: str) -> None:
    assert compare(tmp_path, loaders=(ODD + loader, HONEST)) == 0
    document = results(tmp_path)
    assert document["loaders"][0]["out"] == says
    assert f"{document['loaders'][0]['name']} is not measured: first load" in capsys.readouterr().out
    assert [case["loader"] for case in document["cases"]] == ["safetensors", "safetensors"]


def test_a_loader_asked_for_by_name_has_to_run(tmp_path: Path, capsys: Any) -> None:
    loaders = (ODD + "Absent", HONEST)
    assert compare(tmp_path, "--loaders=absent,safetensors", loaders=loaders) == 3
    assert "measure absent: ModuleNotFoundError" in capsys.readouterr().err
    assert len(results(tmp_path)["cases"]) == 2
    assert compare(tmp_path, loaders=(ODD + "Absent",)) == 3
    assert "none of them could be measured here" in capsys.readouterr().err


def test_a_load_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with Process(ODD + "Hanging", tmp_path) as process:
        (tmp_path / "digests").write_text("{}")
        process.ask("open", 300, path="blob", device="cpu", digests=str(tmp_path / "digests"))
        assert process.ask("start", 300)["refused"] is None
        with pytest.raises(LoaderError, match=r"^load was not done after 0\.2 s, and was ended$"):
            process.ask("load", 0.2)
        with pytest.raises(LoaderError, match="its process was ended by SIGKILL"):
            process.ask("load", 0.2)


def test_a_process_that_does_not_start_is_asked_no_more(tmp_path: Path) -> None:
    file: Any = Contestant(tmp_path)
    with Process(ODD + "Nobody", tmp_path) as process:
        contestant = measure.Contestant(Loader(), process, file, 300)
        contestant.open("cpu", tmp_path / "digests")
        words = "open: its process ended with exit code 1: AttributeError: "
        assert contestant.out.startswith(words)
        contestant.start()
        contestant.first_load()
        assert contestant.out.startswith(words)
        assert measure.loaders_of([contestant])[0]["start_s"] is None


def test_safetensors_is_made_to_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.arange(100000)}, path)
    loader = Safetensors()
    assert loader.available("cpu") is None
    assert loader.load(path, "cpu") == 800000
    assert str(path) not in Path("/proc/self/maps").read_text()  # what is only mapped was not read
    assert torch.equal(loader.tensors["x"], torch.arange(100000))
    loader.release()
    assert loader.tensors == {}


def test_the_tensors_of_a_file(tmp_path: Path, capsys: Any) -> None:
    tensors = {
        "norm": torch.arange(100, dtype=torch.float32),
        "half": torch.randn(300, 1000).bfloat16(),
        "one": torch.tensor(True),
        "none": torch.zeros(0, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert compare(tmp_path, f"--path={tmp_path / 'model.safetensors'}") == 0
    document = results(tmp_path)
    assert document["content"] == "the tensors of model.safetensors"
    assert document["payload_bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    assert {case["loader"] for case in document["cases"]} == {"coldsnap", "safetensors"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "out"]


def test_an_artifact_is_read_where_it_is(tmp_path: Path, capsys: Any) -> None:
    blob = written(tmp_path / "artifact", {"a": np.arange(1000, dtype=np.int64), "b": np.ones(70000, np.uint8)})
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert compare(tmp_path, f"--path={blob}", "--samples=1") == 0
    assert results(tmp_path)["payload_bytes"] == 78000
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted([*before, "out", "peers.json"])


def test_tensors_that_share_memory_are_refused(tmp_path: Path, capsys: Any) -> None:
    whole = np.arange(1000, dtype=np.int64)
    blob = written(tmp_path / "artifact", {"a": whole, "b": whole[:500]})
    assert compare(tmp_path, f"--path={blob}") == 2
    assert "stand for tensors that share memory" in capsys.readouterr().err


def written(folder: Path, arrays: dict[str, Any]) -> Path:
    from coldsnap import _native, tensors

    _native.write_artifact(str(folder), tensors.native_specs(arrays), "{}", "{}", "{}")
    return folder / "shard-00-00-00" / "weights.safetensors"


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--samples=0", "--samples=0"),
        ("--loaders=nobody", "known are coldsnap, safetensors"),
        ("--path=missing", "there is no such file or folder"),
        ("--bytes=1MiB", "give at least --bytes=2097152"),
        ("--device=cuda:99", "cuda:99"),
        ("--commit=abc", "40 hex digits"),
    ],
)
def test_wrong_flags(tmp_path: Path, capsys: Any, flag: str, says: str) -> None:
    assert compare(tmp_path, flag) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert len(stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_named(tmp_path: Path) -> None:
    size = integrity.BLOCK + 5
    tensors = {"x": torch.arange(size, dtype=torch.int64).to(torch.uint8), "y": torch.ones(3, dtype=torch.float16)}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    wanted = integrity.digests_of(path)
    assert [len(wanted["x"]), len(wanted["y"])] == [2, 1]
    assert integrity.first_difference(tensors, path, wanted) is None
    right = int(tensors["x"][-2])
    tensors["x"][-2] = 200
    words = f"byte {size - 2} of x is 200, not {right} (1 of 5 bytes from {integrity.BLOCK} on differ)"
    assert integrity.first_difference(tensors, path, wanted) == words
    assert integrity.first_difference(tensors | {"x": tensors["x"][:9]}, path, wanted) == f"x has 9 bytes, not {size}"
    integrity.poison(tensors)
    words = "byte 0 of x is 255, not 0 (8355840 of 8388608 bytes from 0 on differ)"
    assert integrity.first_difference(tensors | {"y": torch.ones(3, dtype=torch.float16)}, path, wanted) == words


def test_states_are_proved_before_each_sample(tmp_path: Path, monkeypatch: Any) -> None:
    left = iter([0.0, 0.5])
    monkeypatch.setattr(cache, "make_cold", lambda path: 0.0)
    monkeypatch.setattr(cache, "residency", lambda path: next(left))
    contestant: Any = Contestant(tmp_path)
    row = measure.Row(contestant, "cold")
    row.sample()
    assert (row.cache, row.residency_before) == ("cold", [0.0])
    row.sample()
    assert (row.cache, row.residency_before) == ("mixed", [0.0, 0.5])
    drive = ceilings.Ceiling(ceilings.RAW_DIRECT_READ, 1, lambda _: 0.0, samples=[1e9])
    memory = ceilings.Ceiling(ceilings.PAGE_CACHE_READ, 1, lambda _: 0.0, samples=[5e9])
    assert measure.bound_of(row, [drive, memory]) is memory  # what was not cold is not held against the drive
    row.residency_before = [0.0]
    assert measure.bound_of(row, [drive, memory]) is drive


class Contestant:
    """Stands in for one: loads in no time."""

    out = ""

    def __init__(self, folder: Path) -> None:
        self.source = self
        self.blob = folder

    def files(self) -> list[Path]:
        return [self.blob]

    def load(self, doing: str) -> dict[str, Any]:
        return {"wall_s": 1.0, "residency": 1.0, "how": "at once"}


def test_results_name_no_folder() -> None:
    text = "OSError: /opt/x/lib.so: cannot open '/a b/c': at /usr/src/a.cpp:21, 3 GB/s, n/a"
    assert measure.without_folders(text) == "OSError: lib.so: cannot open 'a b/c': at a.cpp:21, 3 GB/s, n/a"


def test_the_bundle_has_what_the_locks_pin() -> None:
    lock = "# text\n\na-b==1.0 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\nc==2 \\\n    --hash=sha256:33\n"
    pins = peers_bundle.pins_of(lock)
    assert pins == {
        "a-b": "a-b==1.0 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n",
        "c": "c==2 \\\n    --hash=sha256:33\n",
    }
    wanted = peers_bundle.wanted_pins(Path(peers.__file__).parent.parent)
    assert {"fastsafetensors", "kvikio-cu13", "safetensors", "absl-py", "rich"} <= set(wanted)
    assert not {"torch", "numpy"} & set(wanted)  # the machine has its own
    assert peers_bundle.fitting({"large": 50, "small": 10, "middle": 20}, 60) == ["small", "middle"]


def test_plain_python_finds_the_modules(tmp_path: Path) -> None:
    program = Path(peers.__file__)
    found = [path for path in sys.path if path and Path(path, "coldsnap").is_dir()]
    done = subprocess.run(
        [sys.executable, str(program), "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "python3 bench/peers.py" in done.stdout
    assert "--limit_s=...  seconds for one load" in done.stdout
