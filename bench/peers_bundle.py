"""Packs what bench/peers.py needs on a GPU machine without a network: wheels of the locked versions, checked by hash.

    python3 bench/peers_bundle.py --output=FOLDER

There: pip install --no-index --no-deps --target=TARGET FOLDER/*.whl, and TARGET on PYTHONPATH. torch and numpy are
expected on that machine. Runs with the standard library alone.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKS = ("requirements-peers.lock", "requirements.lock")  # in third_party/python
# Of the second lock: what the comparison imports, and what that imports.
OF_BASE = ("absl-py", "markdown-it-py", "mdurl", "pygments", "rich", "safetensors")
MIB = 1 << 20
# pip takes a platform at its word, so the older ones that a wheel may be marked for are named too.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(34, 16, -1)] + ["manylinux2014_x86_64"]


def pins_of(text: str) -> dict[str, str]:
    """Divide a lock file into its pins: package to the lines that pip reads, hashes included."""
    pins: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith(("#", " ")):
            name = line.partition("==")[0]
        if name and line.strip():
            pins[name] = pins.get(name, "") + line + "\n"
    return pins


def wanted_pins(root: pathlib.Path) -> dict[str, str]:
    """Give the pins of all that goes into the bundle."""
    peers, base = (pins_of((root / "third_party" / "python" / name).read_text(encoding="utf-8")) for name in LOCKS)
    return peers | {name: base[name] for name in OF_BASE}


def fitting(sizes: dict[str, int], most: int) -> list[str]:
    """Choose the wheels that fit into `most` bytes together: the smaller ones first, so that few are left out."""
    chosen, total = [], 0
    for name, size in sorted(sizes.items(), key=lambda item: item[1]):
        if total + size <= most:
            chosen.append(name)
            total += size
    return chosen


def download(pins: dict[str, str], python: str, folder: pathlib.Path) -> None:
    """Have pip fetch the wheels for an interpreter into `folder`; ends the program with pip's words if it can't."""
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(pins.values()), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", python, "--dest", str(folder), "-r", str(requirements)]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"peers_bundle: fetch {len(pins)} wheels for Python {python}: pip ended with {done.returncode}\n{done.stderr}"
        )


def main() -> int:
    """Fill the folder and say what is in it, and what did not fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder for the wheels")
    parser.add_argument("--python", default="3.12", help="version of Python there")
    parser.add_argument("--max-mib", type=int, default=55, help="largest sum of their sizes")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        download(wanted_pins(ROOT), given.python, scratch)
        sizes = {wheel.name: wheel.stat().st_size for wheel in scratch.glob("*.whl")}
        chosen = fitting(sizes, given.max_mib * MIB)
        for wheel in chosen:
            (given.output / wheel).write_bytes((scratch / wheel).read_bytes())
    for wheel in sorted(sizes, key=lambda name: -sizes[name]):
        print(f"{sizes[wheel] / MIB:6.1f} MiB  {wheel}{'' if wheel in chosen else '  LEFT OUT: does not fit'}")
    total = sum(sizes[wheel] for wheel in chosen)
    print(f"{total / MIB:6.1f} MiB  {len(chosen)} of {len(sizes)} wheels, for Python {given.python}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
