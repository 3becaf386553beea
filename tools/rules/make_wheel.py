"""Writes a wheel from a plan: ``make_wheel.py PLAN.json OUT.whl``.

The same inputs give the same bytes: members are sorted, and all carry one fixed time and the modes below.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import sys
import zipfile

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def metadata(plan: dict) -> str:
    """The METADATA file."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {plan['distribution']}",
        f"Version: {plan['version']}",
        f"Summary: {plan['summary']}",
        f"Requires-Python: {plan['requires_python']}",
        f"License-Expression: {plan['licence_expression']}",
    ]
    lines += [f"License-File: {name}" for name in sorted(plan["licences"])]
    lines += [f"Requires-Dist: {requirement}" for requirement in plan["requires"]]
    for extra, requirements in sorted(plan["extras"].items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {requirement} ; extra == "{extra}"' for requirement in requirements]
    text = "\n".join(lines) + "\n"
    if plan["description"]:
        text = text + "Description-Content-Type: text/markdown\n\n" + pathlib.Path(plan["description"]).read_text()
    return text


def entry_points(groups: dict[str, list[str]]) -> str:
    """The entry_points.txt file."""
    return "\n".join(f"[{group}]\n" + "".join(f"{line}\n" for line in lines) for group, lines in sorted(groups.items()))


def main() -> None:
    """Reads the plan and writes the wheel."""
    plan_path, wheel_path = sys.argv[1:]
    plan = json.loads(pathlib.Path(plan_path).read_text())
    info = f"{plan['distribution']}-{plan['version']}.dist-info"

    contents = {path: pathlib.Path(source).read_bytes() for path, source in plan["members"].items()}
    for name, source in plan["licences"].items():
        contents[f"{info}/licenses/{name}"] = pathlib.Path(source).read_bytes()
    sbom = pathlib.Path(plan["sbom"])
    contents[f"{info}/sboms/{sbom.name}"] = sbom.read_bytes()
    contents[f"{info}/METADATA"] = metadata(plan).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: coldsnap\nRoot-Is-Purelib: false\nTag: {plan['tag']}\n"
    contents[f"{info}/WHEEL"] = wheel.encode()
    if plan["entry_points"]:
        contents[f"{info}/entry_points.txt"] = entry_points(plan["entry_points"]).encode()

    record = []
    for path, data in sorted(contents.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    contents[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()

    with zipfile.ZipFile(wheel_path, "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in sorted(contents.items()):
            member = zipfile.ZipInfo(path, EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if ".so" in pathlib.PurePath(path).suffixes else 0o644
            member.external_attr = (0o100000 | mode) << 16
            out.writestr(member, data)


if __name__ == "__main__":
    main()
