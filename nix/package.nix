# The Python package with its native module, made by nix/build_native.sh: Bazel would fetch, and the sandbox forbids it.
{
  pkgs,
  source,
  cuda,
}:

let
  python = pkgs.python312;
  openssl = pkgs.openssl.override { static = true; };
  # nanobind as the lock has it, not nixpkgs' own version. fetchPypi is given the lock's digest.
  lock = builtins.readFile "${source}/third_party/python/requirements.lock";
  pinned = builtins.head (builtins.split "\n[a-z]" (builtins.elemAt (builtins.split "\nnanobind==" lock) 2));
  field = pattern: builtins.head (builtins.match pattern pinned);
  nanobind = python.pkgs.fetchPypi {
    pname = "nanobind";
    version = field "([0-9.]+) .*";
    format = "wheel";
    dist = "py3";
    python = "py3";
    sha256 = field ".*sha256:([0-9a-f]+).*";
  };
  needs = packages: [
    packages.absl-py
    packages.numpy
    packages.rich
  ];
  withNeeds = python.withPackages needs;
  run = pkgs.writeShellScript "coldsnap" ''
    PYTHONPATH=${package}/${python.sitePackages} exec ${withNeeds}/bin/python -c '
    import sys
    from coldsnap import cli
    sys.exit(cli.main())
    ' "$@"
  '';
  package = pkgs.stdenv.mkDerivation {
    name = "coldsnap";
    src = source;
    nativeBuildInputs = [
      pkgs.unzip
      python
    ];
    buildInputs = [
      openssl
      pkgs.isa-l
      pkgs.rapidjson
    ];
    buildPhase = ''
      unzip -q ${nanobind} -d wheel
      CUDA=${cuda} NANOBIND=wheel/nanobind PYTHON=python3.12 bash nix/build_native.sh built
    '';
    installPhase = ''
      site=$out/${python.sitePackages}
      mkdir -p $site
      cp -r py/coldsnap $site/
      rm -r $site/coldsnap/_native
      cp built/_native* $site/coldsnap/
    '';
    passthru = {
      calibrate = pkgs.writeShellScript "calibrate" ''exec ${run} calibrate "$@"'';
      # An artifact is captured and restored by each backend that needs no device.
      roundTrip = pkgs.runCommand "coldsnap-round-trip" { } ''
        PYTHONPATH=${package}/${python.sitePackages} ${withNeeds}/bin/python ${source}/nix/round_trip.py
        touch $out
      '';
    };
  };
in
package
