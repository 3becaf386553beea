"""Versions, origins and digests of a bill of materials, from each kind of file that may say them."""

from __future__ import annotations

import json
import pathlib

import pytest

from tools.rules import make_sbom

ONE, TWO = "1" * 64, "2" * 64
LOCK = f"""# Written by a test.

other-name==9.9 \\
    --hash=sha256:{"9" * 64}
name==1.2 ; python_version in "3.11" \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{TWO}
"""


@pytest.fixture
def plan(tmp_path: pathlib.Path) -> dict:
    common = {"carried": True, "file": "", "licence": "MIT", "optional": False}
    return {**common, "name": "name", "origin": str(tmp_path / "origin")}


def component(plan: dict, suffix: str, text: str) -> dict:
    path = pathlib.Path(plan["origin"] + suffix)
    path.write_text(text, encoding="utf-8")
    return make_sbom.component({**plan, "origin": str(path)})


def test_a_lock_gives_the_digests_that_it_accepts(plan: dict) -> None:
    found = component(plan, ".lock", LOCK)
    assert (found["version"], found["purl"], found["bom-ref"]) == ("1.2", "pkg:pypi/name@1.2", "pkg:pypi/name@1.2")
    assert found["hashes"] == [{"alg": "SHA-256", "content": ONE}, {"alg": "SHA-256", "content": TWO}]


def test_the_digest_of_a_file_comes_before_those_of_its_package(plan: dict, tmp_path: pathlib.Path) -> None:
    (tmp_path / "library.a").write_bytes(b"abc")
    found = component({**plan, "file": str(tmp_path / "library.a")}, ".lock", LOCK)
    (digest,) = found["hashes"]
    assert digest["content"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_lock_of_other_packages_ends_the_build(plan: dict) -> None:
    with pytest.raises(SystemExit, match=r"look up absent in origin\.lock: it is not there; remedy: "):
        component({**plan, "name": "absent"}, ".lock", LOCK)


@pytest.mark.parametrize(("suffix", "text"), [(".lock", "# no version is known\n"), (".json", "{}")])
def test_what_no_package_brought_has_no_version(plan: dict, suffix: str, text: str) -> None:
    found = component(plan, suffix, text)
    assert not {"version", "purl", "hashes"} & found.keys()
    assert found["bom-ref"] == "name"


def test_a_header_gives_its_three_numbers(plan: dict) -> None:
    lines = [f"#define XY_VERSION_{part} {number}" for part, number in (("MAJOR", 1), ("MINOR", 4), ("PATCH", 0))]
    found = component(plan, ".h", "\n".join(lines))
    assert (found["version"], found["purl"]) == ("1.4.0", "pkg:generic/name@1.4.0")
    with pytest.raises(SystemExit, match="and it takes three numbers"):
        component(plan, ".h", "\n".join(lines[:2]))


def test_order_does_not_depend_on_that_of_the_plan(plan: dict, tmp_path: pathlib.Path) -> None:
    parts = []
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"purl": f"pkg:generic/{name}@1", "version": "1"}))
        parts.append({**plan, "name": name, "origin": str(tmp_path / f"{name}.json")})
    whole = {"distribution": "ours", "licence": "MIT", "version": "1"}
    assert make_sbom.bill({**whole, "components": parts}) == make_sbom.bill({**whole, "components": parts[::-1]})
