// SHA-256, and the two-level tree over it that the artifact format uses (sha256-tree-65536, docs/format.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cc/base/types.h"

namespace coldsnap {

Sha256 Sha256Of(std::span<const std::byte> bytes);

// The root of an extent, from the digests of its consecutive 65536-byte leaves. No leaves: SHA-256 of nothing.
Sha256 TreeRoot(std::span<const Sha256> leaves);

// The leaf digests of `bytes`; the last leaf is as short as it is.
std::vector<Sha256> LeafDigests(std::span<const std::byte> bytes);

}  // namespace coldsnap
