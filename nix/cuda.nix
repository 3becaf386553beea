# The CUDA 13 toolkit as one folder, as tools/repos/cuda.bzl wants it in COLDSNAP_CUDA: nixpkgs has each part apart, and
# each part's headers, programs and static libraries in outputs of their own.
{ pkgs, parts }:

pkgs.symlinkJoin {
  name = "coldsnap-cuda";
  paths = builtins.concatMap (part: map (output: part.${output}) part.outputs) parts;
  postBuild = ''
    [ -e $out/lib64 ] || ln -s lib $out/lib64
  '';
}
