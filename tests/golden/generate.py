"""Writes the golden artifact to a folder that is not there yet: once for each format."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from tests.golden import described


def main(folder: pathlib.Path) -> None:
    if folder.exists():
        sys.exit(f"write a golden artifact to {folder}: it is there, and golden artifacts never change")
    with tempfile.TemporaryDirectory() as scratch:
        shards = {shard: described.write_shard(shard, pathlib.Path(scratch, shard)) for shard in described.SHARDS}
        for shard, written in shards.items():
            (folder / shard).mkdir(parents=True)
            for name in ("weights.safetensors", "leaves.bin", "manifest.json"):
                (folder / shard / name).write_bytes((written.blob_path.parent / name).read_bytes())
        (folder / "artifact.json").write_bytes(described.artifact_json(shards))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
