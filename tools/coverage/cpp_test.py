"""Counts come from what gcc really leaves behind, and a build or a run that left nothing is no result."""

import pathlib
import subprocess

import pytest

from tools.coverage import cpp
from tools.coverage.gaps import Gap

SOURCE = """namespace coldsnap {
int Halve(int value) {
  if (value < 0) {
    value = -value;
    value -= 1;
  }
  const auto odd = [](int of) {
    return of % 2 != 0;
  };
  if (odd(value)) {
    return 0;
  }
  return value / 2;
}
int Never() {
  return 3;
}
}  // namespace coldsnap
int main() { return coldsnap::Halve(4) == 2 ? 0 : 1; }
"""


@pytest.fixture
def built(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A work tree with cc/room/half.cc, and an output folder with its object as Bazel would have made it."""
    top, out = tmp_path / "tree", tmp_path / "out"
    (top / "cc" / "room").mkdir(parents=True)
    (top / "cc" / "room" / "half.cc").write_text(SOURCE)
    place = out / "cc" / "room" / "_objs" / "half"
    place.mkdir(parents=True)
    compiled = ["g++", "-O0", "--coverage", "-c", "cc/room/half.cc", "-o", str(place / "half.pic.o")]
    subprocess.run(compiled, cwd=top, check=True)
    subprocess.run(["g++", "--coverage", str(place / "half.pic.o"), "-o", str(out / "half")], check=True)
    return top, out


def test_lines_that_ran(built: tuple[pathlib.Path, pathlib.Path]) -> None:
    top, out = built
    for _ in range(2):  # the second run adds to the first
        subprocess.run([str(out / "half")], check=True)
    found = cpp.read(out, top)
    assert list(found) == ["cc/room/half.cc"]
    ran = found["cc/room/half.cc"].ran
    assert {number: ran[number] for number in (3, 4, 5, 8, 11, 13, 16)} == {3: 2, 4: 0, 5: 0, 8: 2, 11: 0, 13: 2, 16: 0}
    name = "cc/room/half.cc"
    assert cpp.gaps_of(name, found[name], SOURCE) == {
        Gap(name, "Halve", "value = -value;"): 2,
        Gap(name, "Halve", "return 0;"): 1,
        Gap(name, "Never", "int Never() {"): 2,
    }
    cpp.forget(out)
    subprocess.run([str(out / "half")], check=True)
    assert cpp.read(out, top)[name].ran[13] == 1


def test_no_counts(built: tuple[pathlib.Path, pathlib.Path]) -> None:
    top, out = built
    with pytest.raises(RuntimeError, match="no program left any"):
        cpp.read(out, top)


def test_no_notes(built: tuple[pathlib.Path, pathlib.Path]) -> None:
    top, out = built
    subprocess.run([str(out / "half")], check=True)
    place = out / "cc" / "room" / "_objs" / "half"
    (place / "other.pic.d").write_text("other.pic.o: from a cache")
    with pytest.raises(RuntimeError, match=r"notes of 1 objects, the first .*other\.pic\.d"):
        cpp.read(out, top)


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("coldsnap::Ring::Acquire()", "Ring::Acquire"),
        ("coldsnap::(anonymous namespace)::Open[abi:cxx11](int)", "Open"),
        ("coldsnap::Result<std::map<int, int> > coldsnap::Read<int>(int)", "Read"),
        ("coldsnap::Crew::Run(std::function<void (int)>)::{lambda(int)#1}::operator()(int) const", "Crew::Run"),
        ("decltype ({parm#1}()) coldsnap::(anonymous namespace)::IfMemoryIsThere<int>(int)", "IfMemoryIsThere"),
        ("main", "main"),
    ],
)
def test_names(demangled: str, name: str) -> None:
    assert cpp.function_name(demangled) == name
