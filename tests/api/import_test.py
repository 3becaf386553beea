"""`import coldsnap` is light: no torch, no numpy, and no CUDA library in the process, even with the core loaded."""

import json
import pathlib
import subprocess
import sys

_PROGRAM = """
import json, sys
import coldsnap
light = [name for name in ("torch", "numpy", "coldsnap._native") if name in sys.modules]
import coldsnap._native
maps = open("/proc/self/maps").read().splitlines()
libraries = sorted({line.split(None, 5)[5] for line in maps if line.count(" ") >= 5 and ".so" in line})
print(json.dumps({"light": light, "later": [n for n in ("torch", "numpy") if n in sys.modules], "maps": libraries}))
"""


def test_importing_loads_neither_torch_nor_numpy_nor_cuda(tmp_path: pathlib.Path) -> None:
    child = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["light"] == []
    assert found["later"] == []
    names = [pathlib.Path(path).name for path in found["maps"]]
    assert any("_native" in name for name in names)  # the check sees libraries at all
    assert [name for name in names if name.startswith(("libcuda", "libnv", "libcufile", "libtorch", "libc10"))] == []
