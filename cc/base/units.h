// Sizes that the artifact format and the data path share, and the arithmetic of alignment.
#pragma once

#include <cstdint>

namespace coldsnap {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// One leaf of the digest tree, and the unit that groups are aligned and padded to (docs/format.md).
inline constexpr uint64_t kLeafBytes = 64 * kKiB;

// `to` is a power of two in all three.
constexpr uint64_t AlignDown(uint64_t value, uint64_t to) { return value & ~(to - 1); }
constexpr uint64_t AlignUp(uint64_t value, uint64_t to) { return AlignDown(value + to - 1, to); }
constexpr bool IsAligned(uint64_t value, uint64_t to) { return (value & (to - 1)) == 0; }

constexpr uint64_t CeilDiv(uint64_t value, uint64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

// How many leaves an extent of `nbytes` has; none when it is empty.
constexpr uint64_t LeavesOf(uint64_t nbytes) { return CeilDiv(nbytes, kLeafBytes); }

}  // namespace coldsnap
