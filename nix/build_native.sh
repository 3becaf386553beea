#!/usr/bin/env bash
# Makes the extension module with a C++ compiler and nvcc alone, for where Bazel may fetch nothing: Nix's sandbox.
#   CUDA=TOOLKIT NANOBIND=FOLDER PYTHON=INTERPRETER nix/build_native.sh OUT
# It is started at the top of the repository. ISA-L, OpenSSL's libcrypto.a and RapidJSON are where the compiler looks by
# itself. The options are those of tools/rules/cc.bzl, cuda.bzl and tools/bazelrc/common.rc, without the warnings.
set -euo pipefail
out="$1"
objects="$(mktemp -d)"
trap 'rm -rf "$objects"' EXIT
python() { "$PYTHON" -c "import sysconfig; print(sysconfig.$1)"; }

export CXX="${CXX:-g++}" NVCC="$CUDA/bin/nvcc" OBJECTS="$objects"
export OPTIONS="-std=c++20 -O2 -DNDEBUG -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -w
  -I. -I$NANOBIND/include -I$NANOBIND/ext/robin_map/include -I$(python 'get_path("include")') -isystem $CUDA/include"
# nanobind's own sources want no strict aliasing.
compile() { # compile SOURCE
  local object="$OBJECTS/${1//\//_}.o"
  case "$1" in
    *.cu)
      "$NVCC" -std=c++20 -O3 -DNDEBUG -I. -Xcompiler -fPIC,-fvisibility=hidden -c "$1" -o "$object" \
        -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
        -gencode arch=compute_100,code=sm_100 -gencode arch=compute_100,code=compute_100
      ;;
    */nb_combined.cpp) $CXX $OPTIONS -O3 -fno-strict-aliasing -c "$1" -o "$object" ;;
    *) $CXX $OPTIONS -c "$1" -o "$object" ;;
  esac
}
export -f compile

{
  find cc py/coldsnap/_native \( -path cc/testing -o -path cc/abi \) -prune -o \
    \( -name '*.cc' -o -name '*.cu' \) -not -name '*_test.cc' -print | sort
  echo "$NANOBIND/src/nb_combined.cpp"
} | xargs -P "${NIX_BUILD_CORES:-1}" -I{} bash -euc 'compile "$1"' compile {}

echo '{ global: PyInit__native; local: *; };' >"$objects/exports.lds"
lib="$CUDA/lib64"
[[ -d $lib ]] || lib="$CUDA/lib"
mkdir -p "$out"
$CXX -shared -o "$out/_native$(python 'get_config_var("EXT_SUFFIX")')" "$objects"/*.o \
  -Wl,--version-script="$objects/exports.lds" -Wl,--exclude-libs,ALL -Wl,--gc-sections \
  -l:libcrypto.a -lisal "$lib/libcudart_static.a" -ldl -lpthread -lrt
