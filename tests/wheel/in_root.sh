#!/usr/bin/env bash
# Installs a wheel in a fresh root of another Debian release, with that root's own Python, and restores an artifact:
#   tests/wheel/in_root.sh trixie .build/bin/py/coldsnap-*.whl
#   tests/wheel/in_root.sh bullseye .build/bin/py/coldsnap-*.whl "GLIBC_2"
#
# With a third argument the system is too old by design: loading the module must fail, and the loader's message must
# contain that text. Needs root (debootstrap, chroot) and apt's mirror (MIRROR=address for another). What pip gets
# beside the wheel comes from pip's own settings. The root is removed again.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,4p' "$0" >&2
  exit 2
fi
suite="$1" wheel="$(realpath "$2")" expected="${3:-}"
root="$(mktemp -d "${TMPDIR:-/tmp}/coldsnap-root.XXXXXX")"
trap 'rm -rf --one-file-system "$root"' EXIT

packages=python3,libstdc++6
[[ -n $expected ]] || packages+=,python3-venv
debootstrap --variant=minbase --include="$packages" "$suite" "$root/system" ${MIRROR:+"$MIRROR"} >"$root/debootstrap.log" ||
  { tail -n 20 "$root/debootstrap.log" >&2; exit 1; }
mkdir "$root/system/wheel"
cp "$wheel" "$root/system/wheel/"
inside() { chroot "$root/system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }

inside sh -c 'ldd --version | head -n 1; python3 --version; ls /usr/lib/*-linux-gnu/libstdc++.so.6.*'
if [[ -n $expected ]]; then
  # pip there would refuse the wheel for its tag, and Python for its version; the loader has the last word.
  inside python3 - "$expected" <<'PYTHON'
import ctypes, pathlib, sys, zipfile

(wheel,) = pathlib.Path("/wheel").glob("*.whl")
zipfile.ZipFile(wheel).extractall("/wheel/files")
(module,) = pathlib.Path("/wheel/files/coldsnap").glob("_native*.so")
try:
    ctypes.CDLL(str(module))
except OSError as error:
    print(f"the loader says: {error}")
    sys.exit(0 if sys.argv[1] in str(error) else f"{sys.argv[1]!r} was expected in it")
sys.exit("the module loads, though this system is too old for it")
PYTHON
  exit
fi

inside python3 -m venv /venv
# The wheels of other projects are fetched outside, where pip has its settings, for the Python inside.
version="$(inside python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
python3 -m pip download --quiet --only-binary=:all: --python-version "$version" --dest "$root/system/wheel" "$wheel"
inside /venv/bin/pip install --quiet --no-index --find-links /wheel "/wheel/$(basename "$wheel")"
inside /venv/bin/python - <<'PYTHON'
import numpy
import coldsnap
from coldsnap import _native
from coldsnap.tensors import native_specs

source = {"w": numpy.arange(1_000_003, dtype=numpy.uint32)}
_native.write_artifact("/wheel/artifact", native_specs(source), "{}", "{}", "{}")
for backend in ("python", "buffered", "auto"):
    destination = {"w": numpy.zeros_like(source["w"])}
    receipt = coldsnap.hydrate("/wheel/artifact", destination, backend=backend)
    assert (destination["w"] == source["w"]).all(), backend
    print(f"restored {receipt.payload_bytes} bytes by {backend}")
PYTHON
inside /venv/bin/coldsnap --help >/dev/null
echo "installed, imported, restored in $suite"
