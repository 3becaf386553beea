"""coldsnap: the only one here that compares what it loads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.loaders import base


class Coldsnap(base.Loader):
    """Route ``auto`` with its default settings into new tensors; ring, threads and streams stay between loads."""

    name = "coldsnap"
    distribution = "coldsnap"
    verify = "crc32+sha256"
    checks = "all, crc32 and sha256t"

    @property
    def version(self) -> str:
        """Of the package that is imported, installed or not."""
        from coldsnap.version import VERSION

        return VERSION

    def start(self, device: str) -> None:
        """Make ring, threads and streams."""
        from coldsnap import _native, settings

        limits = _native.limits()
        asked = {"backend": "auto", "verify": self.verify}
        wanted = settings.apply_profile(settings.resolve(asked, os.environ), {}, {})
        chosen, _ = settings.fit_ring(wanted, limits)
        self._settings = settings.native_settings(chosen, limits)
        self._hydrator = _native.Hydrator("host" if device == "cpu" else device)
        self._hydrator.prepare("auto", self._settings)

    def read(self, path: Path, device: str) -> dict[str, Any]:
        """Restore the artifact that the file is the blob of."""
        import torch

        import coldsnap
        from coldsnap import layout, tensors

        with coldsnap.open(path.parent.parent, shard=path.parent.name) as artifact:
            found = {
                name: torch.empty(info.shape, dtype=base.torch_dtype(info.dtype), device=device)
                for name, info in artifact.items()
            }
            ranges = layout.match(artifact, tensors.views_of(found), partial=False)
            streams = [] if device == "cpu" else [torch.cuda.current_stream(device).cuda_stream]
            report = self._hydrator.hydrate(artifact.native, ranges, "auto", self.verify, self._settings, streams, None)
        routes = " and ".join(route["route"] for route in report["routes"])
        setting = self._settings
        self.how = (
            f"{routes}, chunk {setting['chunk_bytes'] >> 20} MiB, depth {setting['queue_depth']}, "
            f"{setting['read_threads']} threads"
        )
        return found


class ColdsnapCrc32(Coldsnap):
    """The same with the smaller of the two digests."""

    name = "coldsnap-crc32"
    verify = "crc32"
    checks = "all, crc32"
