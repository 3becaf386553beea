"""A package set that stands in for nixpkgs: the names that the flake may use, and which of them are unfree.

It has no real package, so what is evaluated with it is the flake alone: its outputs, the names in it, its predicate.
"""

from __future__ import annotations

import pathlib

# As nixpkgs calls them; the parts of the CUDA toolkit are unfree and stand in `cudaPackages_13`.
FREE = (
    "bazel_7",
    "gbenchmark",
    "git",
    "gtest",
    "isa-l",
    "nixfmt-rfc-style",
    "openssl",
    "python312",
    "rapidjson",
    "unzip",
)
UNFREE = ("cuda_cccl", "cuda_crt", "cuda_cudart", "cuda_nvcc", "cuda_nvtx", "libcufile", "libnvvm")

_LIB = """
{
  genAttrs = names: make:
    builtins.listToAttrs (map (name: { inherit name; value = make name; }) names);
  getName = package: package.pname;
}
"""

_PACKAGES = """
{ system, config }:
let
  made = name: attributes: (derivation ({
    inherit name system;
    builder = "/bin/sh";
    outputs = [ "out" "dev" ];
  } // attributes)) // { pname = name; };
  free = name: made name { } // { override = arguments: made name arguments; };
  unfree = name:
    if config.allowUnfreePredicate { pname = name; } then made name { }
    else throw "${name} is unfree, and the predicate refuses it";
  setOf = make: names: builtins.listToAttrs (map (name: { inherit name; value = make name; }) names);
  python = made "python312" { } // {
    sitePackages = "lib/python3.12/site-packages";
    pkgs.fetchPypi = arguments: made "fetched" (removeAttrs arguments [ ]);
    withPackages = choose: made "python-with-packages" {
      packages = choose (setOf free [ "absl-py" "numpy" "rich" ]);
    };
  };
  all = setOf free [ FREE ] // {
    cudaPackages_13 = setOf unfree [ UNFREE ];
    mkShell = arguments: made "shell" arguments;
    runCommand = name: arguments: script: made name (arguments // { inherit script; });
    stdenv.mkDerivation = arguments: made arguments.name (removeAttrs arguments [ "passthru" ]) // arguments.passthru;
    symlinkJoin = arguments: made arguments.name arguments // { inherit (arguments) paths; };
    writeShellScript = name: text: made name { inherit text; };
  };
in
all // (if all ? python312 then { python312 = python; } else { })
"""


def write(folder: pathlib.Path, *, without: str = "") -> pathlib.Path:
    """Write the set as a flake into ``folder``, leaving one package out."""

    def listed(names: tuple[str, ...]) -> str:
        return " ".join(f'"{name}"' for name in names if name != without)

    folder.mkdir()
    text = _PACKAGES.replace("[ FREE ]", f"[ {listed(FREE)} ]").replace("[ UNFREE ]", f"[ {listed(UNFREE)} ]")
    (folder / "default.nix").write_text(text, encoding="utf-8")
    (folder / "lib.nix").write_text(_LIB, encoding="utf-8")
    (folder / "flake.nix").write_text("{ outputs = _: { lib = import ./lib.nix; }; }\n", encoding="utf-8")
    return folder
