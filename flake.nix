{
  description = "coldsnap: finished weights of an LLM engine, captured once and restored at every later start";

  # nixos-25.11 at one exact revision. `nix flake lock` adds its hash: docs/nix.md.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/8fd9daa3db09ced9700431c5b7ad0e8ba199b575";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];

      # All that may be unfree: the parts of the CUDA 13 toolkit that a build needs.
      cudaParts = [
        "cuda_cccl"
        "cuda_crt"
        "cuda_cudart"
        "cuda_nvcc"
        "cuda_nvtx"
        "libcufile"
        "libnvvm"
      ];
      isCudaPart = package: builtins.elem (nixpkgs.lib.getName package) cudaParts;

      packagesOf =
        system:
        let
          pkgs = import nixpkgs {
            inherit system;
            config.allowUnfreePredicate = isCudaPart;
          };
          parts = map (name: pkgs.cudaPackages_13.${name}) cudaParts;
        in
        pkgs
        // rec {
          coldsnapCuda = import ./nix/cuda.nix { inherit pkgs parts; };
          coldsnap = import ./nix/package.nix {
            inherit pkgs;
            source = self;
            cuda = coldsnapCuda;
          };
        };
      forEach = make: nixpkgs.lib.genAttrs systems (system: make (packagesOf system));
    in
    {
      lib.unfreePredicate = isCudaPart;

      packages = forEach (pkgs: {
        default = pkgs.coldsnap;
        cuda = pkgs.coldsnapCuda;
      });

      devShells = forEach (pkgs: {
        default = import ./nix/shell.nix {
          inherit pkgs;
          cuda = pkgs.coldsnapCuda;
        };
      });

      apps = forEach (pkgs: {
        calibrate = {
          type = "app";
          program = "${pkgs.coldsnap.calibrate}";
          meta.description = "Measures which route, chunk and depth are right on this machine";
        };
      });

      checks = forEach (pkgs: {
        round-trip = pkgs.coldsnap.roundTrip;
      });

      formatter = forEach (pkgs: pkgs.nixfmt-rfc-style);
    };
}
