"""What a calibration found best, for the profile that later restores read."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from coldsnap import errors, profile
from coldsnap._bench import recommend


def write_profile(folder: Path, device: str, document: dict[str, Any], commit: str) -> list[str]:
    """Write the profile that later restores read; give a note where that is not possible."""

    def best_of(route: str, cache: str) -> profile.Best | None:
        row = recommend.best_of(recommend.restores_of(document, route, cache), route, document["request"])
        if row is None:
            return None
        return profile.Best(row["threads"], row["chunk_bytes"], row["queue_depth"], float(row["bytes_per_second"]))

    def ceiling(*families: str) -> float | None:
        rates = [row["median"] for row in document["ceilings"] if row["name"].partition(".")[0] in families]
        return float(max(rates)) if rates else None

    entry = profile.Entry(
        key=profile.key_of(folder, device),
        direct=best_of("direct", "cold"),
        buffered=best_of("buffered", "warm"),
        ceilings=profile.Ceilings(ceiling("pinned_h2d"), ceiling("raw_direct_read"), ceiling("page_cache_read")),
        measured_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=commit,
    )
    try:
        profile.update(entry, os.environ)
    except errors.Error as cause:
        return [f"the profile could not be written: {cause}"]
    return []
