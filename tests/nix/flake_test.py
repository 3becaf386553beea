"""The flake evaluates, with a package set that this test writes: its outputs for both systems, and its unfree packages."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.nix import stub

TOP = pathlib.Path(os.environ["RUNFILES_ROOT"])
SYSTEMS = ("aarch64-linux", "x86_64-linux")
HANGS_AFTER_S = 100

# Every derivation of the flake, by output and system: without its path nothing of it was evaluated.
DERIVATIONS = """flake: builtins.mapAttrs (output: builtins.mapAttrs (system: found:
  if found ? drvPath then found.drvPath
  else builtins.mapAttrs (name: each: each.drvPath or (builtins.seq each.type each.program)) found
)) (builtins.intersectAttrs
  { packages = 1; devShells = 1; apps = 1; checks = 1; formatter = 1; } flake)"""


@pytest.fixture
def flake(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of what the flake reads; skips where there is no Nix."""
    if shutil.which("nix") is None:
        pytest.skip("nix is not installed: apt-get install nix-bin")
    copy = tmp_path / "flake"
    (copy / "third_party" / "python").mkdir(parents=True)
    shutil.copy(TOP / "flake.nix", copy)
    shutil.copytree(TOP / "nix", copy / "nix")
    shutil.copy(TOP / "third_party" / "python" / "requirements.lock", copy / "third_party" / "python")
    return copy


def nix(flake: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run nix with a store and a home of its own below the test's folder, and without a network."""
    folder = flake.parent
    places = {f"NIX_{name}_DIR": str(folder / "nix" / name.lower()) for name in ("STORE", "STATE", "LOG", "CONF")}
    settings = "experimental-features = nix-command flakes\nbuild-users-group =\n"
    env = {**os.environ, **places, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "NIX_CONFIG": settings}
    command = ["nix", "--offline", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=HANGS_AFTER_S)


def evaluated(flake: pathlib.Path, packages: pathlib.Path, function: str) -> subprocess.CompletedProcess[str]:
    """Apply a function to the outputs of the flake, with ``packages`` as its nixpkgs."""
    outputs = f"""
      let nixpkgs = {{ lib = import {packages}/lib.nix; outPath = {packages}; }};
          self = {{ outPath = {flake}; }};
      in ({function}) ((import {flake}/flake.nix).outputs {{ inherit self nixpkgs; }})"""
    return nix(flake, "eval", "--impure", "--json", "--expr", outputs)


def value(flake: pathlib.Path, packages: pathlib.Path, function: str) -> Any:
    done = evaluated(flake, packages, function)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nix_itself_accepts_it(flake: pathlib.Path) -> None:
    packages = stub.write(flake.parent / "packages")
    options = ("--no-build", "--no-write-lock-file", "--override-input", "nixpkgs", f"path:{packages}")
    done = nix(flake, "flake", "check", f"path:{flake}", *options)
    assert done.returncode == 0, done.stderr


def test_every_output_is_there_for_both_systems(flake: pathlib.Path) -> None:
    found = value(flake, stub.write(flake.parent / "packages"), DERIVATIONS)
    names = {
        "apps": {"calibrate"},
        "checks": {"round-trip"},
        "devShells": {"default"},
        "packages": {"cuda", "default"},
    }
    assert found.keys() == {*names, "formatter"}
    for output, by_system in found.items():
        assert tuple(sorted(by_system)) == SYSTEMS, output
        if output != "formatter":
            assert all(each.keys() == names[output] for each in by_system.values()), output


def test_the_predicate_names_the_unfree_packages_and_no_other(flake: pathlib.Path) -> None:
    packages = stub.write(flake.parent / "packages")
    every = " ".join(f'"{name}"' for name in (*stub.FREE, *stub.UNFREE, "cudnn", "libcublas"))
    allowed = value(flake, packages, f"f: builtins.filter (n: f.lib.unfreePredicate {{ pname = n; }}) [ {every} ]")
    assert sorted(allowed) == sorted(stub.UNFREE)
    used = value(flake, packages, "f: map (part: part.name) f.packages.x86_64-linux.cuda.paths")
    assert set(used) == set(stub.UNFREE)


@pytest.mark.parametrize("name", [*stub.FREE, *stub.UNFREE])
def test_a_name_that_the_package_set_lacks_fails(flake: pathlib.Path, name: str) -> None:
    """So each name of the stub is used, and none of them is passed over where it is missing."""
    done = evaluated(flake, stub.write(flake.parent / "packages", without=name), DERIVATIONS)
    assert done.returncode != 0
    assert re.search(rf"attribute '\"?{re.escape(name)}\"?' missing", done.stderr), done.stderr


def test_nanobind_is_the_locked_one(flake: pathlib.Path) -> None:
    """The package reads version and digest out of the lock."""
    text = (TOP / "third_party" / "python" / "requirements.lock").read_text(encoding="utf-8")
    locked = re.search(r"^nanobind==(\S+) \\\n +--hash=sha256:([0-9a-f]{64})$", text, re.MULTILINE)
    assert locked
    expression = f"""let packages = import {stub.write(flake.parent / "packages")} {{ system = "x86_64-linux"; config = {{ }}; }};
        asked = packages // {{ python312 = packages.python312 // {{ pkgs.fetchPypi = found: throw (toString
          [ found.pname found.version found.sha256 ]); }}; }};
      in (import {flake}/nix/package.nix {{ pkgs = asked; source = {flake}; cuda = "cuda"; }}).drvPath"""
    done = nix(flake, "eval", "--impure", "--expr", expression)
    assert f"nanobind {locked[1]} {locked[2]}" in done.stderr


def test_the_revision_is_exact() -> None:
    text = (TOP / "flake.nix").read_text(encoding="utf-8")
    assert re.search(r'nixpkgs\.url = "github:NixOS/nixpkgs/[0-9a-f]{40}";', text)
