"""Writes a bill of materials, CycloneDX 1.6 in JSON, from a plan: ``make_sbom.py PLAN.json OUT.json``.

The same inputs give the same bytes: it has no time and no serial number, which the schema leaves free.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import sys
from typing import Any


def locked(lock: pathlib.Path, name: str) -> dict[str, Any]:
    """A package of a lock file, with the digest of each distribution that the lock accepts; nothing of an empty lock.

    Raises:
        SystemExit: The lock has other packages only.
    """
    text = lock.read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(name)}==(\S+)((?:.*\\\n)*.*)", text, re.MULTILINE)
    if found is None:
        if "==" in text:
            sys.exit(f"make_sbom.py: look up {name} in {lock.name}: it is not there; remedy: python3 tools/lock.py")
        return {}
    hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", found[2])
    return {"version": found[1], "purl": f"pkg:pypi/{name}@{found[1]}", "hashes": hashes}


def headed(header: pathlib.Path, name: str) -> dict[str, Any]:
    """A library whose header has its version in three numbers."""
    numbers = re.findall(
        r"^#define \w+_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read_text(encoding="utf-8"), re.MULTILINE
    )
    if len(numbers) != 3:
        sys.exit(
            f"make_sbom.py: read the version of {name} from {header.name}: found {numbers}, and it takes three numbers"
        )
    version = ".".join(numbers)
    return {"version": version, "purl": f"pkg:generic/{name}@{version}"}


def origin_of(path: pathlib.Path, name: str) -> dict[str, Any]:
    """Version, purl and hashes, as far as the file says them."""
    if path.suffix == ".lock":
        return locked(path, name)
    if path.suffix == ".h":
        return headed(path, name)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def component(plan: dict[str, Any]) -> dict[str, Any]:
    """One component; what its origin does not say is left out."""
    origin = origin_of(pathlib.Path(plan["origin"]), plan["name"])
    hashes = origin.get("hashes", [])
    if plan["file"]:
        hashes = [hashlib.sha256(pathlib.Path(plan["file"]).read_bytes()).hexdigest()]
    found = {
        "bom-ref": origin.get("purl", plan["name"]),
        "licenses": [{"expression": plan["licence"]}],
        "name": plan["name"],
        "properties": [{"name": "coldsnap:in_the_wheel", "value": json.dumps(plan["carried"])}],
        "scope": "optional" if plan["optional"] else "required",
        "type": "library",
    }
    found |= {key: origin[key] for key in ("version", "purl") if key in origin}
    if hashes:
        found["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
    return found


def bill(plan: dict[str, Any]) -> dict[str, Any]:
    """The whole document."""
    purl = f"pkg:pypi/{plan['distribution']}@{plan['version']}"
    components = sorted(map(component, plan["components"]), key=lambda each: each["bom-ref"])
    refs = [each["bom-ref"] for each in components]
    own = {
        "bom-ref": purl,
        "licenses": [{"expression": plan["licence"]}],
        "name": plan["distribution"],
        "purl": purl,
        "type": "library",
        "version": plan["version"],
    }
    return {
        "bomFormat": "CycloneDX",
        "components": components,
        "dependencies": [{"dependsOn": refs, "ref": purl}, *({"ref": ref} for ref in refs)],
        "metadata": {"component": own, "lifecycles": [{"phase": "build"}]},
        "specVersion": "1.6",
        "version": 1,
    }


def main() -> None:
    """Reads the plan and writes the bill."""
    plan_path, out_path = sys.argv[1:]
    found = bill(json.loads(pathlib.Path(plan_path).read_text(encoding="utf-8")))
    pathlib.Path(out_path).write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
