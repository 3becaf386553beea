"""The bill of materials in the wheel lists what is linked into it, what lies in it and what it needs, with their terms."""

from __future__ import annotations

import email
import hashlib
import importlib.metadata
import os
import pathlib

import pytest

from tests.wheel.bill import bill, carried, contents, only

FILES = contents()
BILL = bill(FILES)
CARRIED = carried(BILL)
METADATA = email.message_from_bytes(only(FILES, ".dist-info/METADATA"))

# Repositories of Bazel whose C++ the module is linked from, and the components that they are.
REPOSITORIES = {
    "cuda_toolkit": {"nvidia-cuda-runtime", "nvidia-nvtx"},
    "isal": {"isa-l"},
    "local_cuda": {"nvidia-cuda-runtime"},
    "openssl": {"openssl"},
    "pyenv": {"nanobind", "robin-map"},
    "rapidjson": {"rapidjson"},
}
# matplotlib has the text of its licence where others have the name.
_BY_CLASSIFIER = {"License :: OSI Approved :: Python Software Foundation License": "PSF-2.0"}


def test_every_repository_that_is_linked_is_listed() -> None:
    lines = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["LINKED"]).read_text(encoding="utf-8").split()
    linked = {line.lstrip("@").partition("//")[0] for line in lines if line.startswith("@")}
    assert linked - REPOSITORIES.keys() == set(), "say in REPOSITORIES which components these are"
    assert set().union(*(REPOSITORIES[name] for name in linked)) == set(CARRIED)


def test_every_library_that_lies_in_the_wheel_is_listed_with_its_digest() -> None:
    listed = {each["content"] for component in CARRIED.values() for each in component.get("hashes", [])}
    libraries = [name for name in FILES if ".so" in pathlib.PurePath(name).suffixes and "/_native" not in name]
    assert libraries
    for name in libraries:
        assert hashlib.sha256(FILES[name]).hexdigest() in listed, name


def test_what_the_wheel_needs_is_listed_and_nothing_else() -> None:
    said = [line.partition(" ; extra == ") for line in METADATA.get_all("Requires-Dist") or []]
    listed = {each["name"]: each["scope"] for each in BILL["components"] if each["name"] not in CARRIED}
    assert listed == {name: "optional" if extra else "required" for name, _, extra in said}


@pytest.mark.parametrize("component", BILL["components"], ids=lambda component: component["name"])
def test_versions_origins_and_digests(component: dict) -> None:
    if component["name"] not in CARRIED or component["name"] == "nanobind":
        assert component["version"] == importlib.metadata.version(component["name"])
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
    elif "purl" not in component:
        pytest.skip(f"{component['name']} comes from no package here: a prefix in COLDSNAP_DEPS or COLDSNAP_CUDA")
    assert component["bom-ref"] == component["purl"]
    # Of RapidJSON and the hash map only headers are used, so no one file is theirs.
    assert "hashes" in component or component["name"] in ("rapidjson", "robin-map")


def test_licences_of_what_is_needed_are_what_the_packages_say() -> None:
    for component in BILL["components"]:
        if component["name"] in CARRIED:
            continue
        said = importlib.metadata.metadata(component["name"])
        classified = [_BY_CLASSIFIER[line] for line in said.get_all("Classifier") or [] if line in _BY_CLASSIFIER]
        expression = said["License-Expression"] or (*classified, said["License"])[0]
        assert component["licenses"] == [{"expression": expression}]


def test_terms_of_all_that_is_in_the_wheel_are_in_it() -> None:
    parts = ["Apache-2.0"]
    for name, component in CARRIED.items():
        text = only(FILES, f".dist-info/licenses/third_party/{name}.txt").decode()
        assert len(text.splitlines()) > 20, f"{name}: {text}"  # what could not be found is one line
        assert f"third_party/{name}.txt" in (METADATA.get_all("License-File") or [])
        parts += component["licenses"][0]["expression"].split(" AND ")
    said = METADATA["License-Expression"].split(" AND ")
    assert said[0] == "Apache-2.0"
    assert sorted(said) == sorted(set(parts))


def test_the_same_build_gives_the_same_bytes() -> None:
    """The target's file is the wheel's, and nothing in it is of the hour."""
    target = pathlib.Path(os.environ["RUNFILES_ROOT"], os.environ["SBOM"])
    assert target.read_bytes() == only(FILES, ".dist-info/sboms/coldsnap.cdx.json")
    assert "timestamp" not in BILL["metadata"]
    assert "serialNumber" not in BILL
