# `nix develop`: what ./bazelw takes from apt elsewhere, and the toolkit. Python's packages come from the locks, by pip.
{ pkgs, cuda }:

let
  # libcrypto.a, which the module is linked with: nixpkgs builds the shared library alone.
  openssl = pkgs.openssl.override { static = true; };
  libraries = [
    pkgs.gbenchmark
    pkgs.gtest
    pkgs.isa-l
    pkgs.rapidjson
    openssl
  ];
in
pkgs.mkShell {
  packages = [
    pkgs.bazel_7
    pkgs.git
    pkgs.python312
  ];
  COLDSNAP_CUDA = cuda;
  # Headers and libraries of one package may be in two outputs.
  COLDSNAP_DEPS = builtins.concatStringsSep ":" (
    builtins.concatMap (library: map (output: "${library.${output}}") library.outputs) libraries
  );
  COLDSNAP_PYTHON = "${pkgs.python312}/bin/python3.12";
  # NVIDIA's own measure of GPUDirect Storage, where the package of libcufile has it.
  shellHook = ''
    [ ! -x ${cuda}/gds/tools/gdsio ] || export PATH="$PATH:${cuda}/gds/tools"
  '';
}
