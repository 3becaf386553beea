// Every number that artifact format 1 fixes, and the bounds that its strict reader holds input to (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/units.h"

namespace coldsnap {

inline constexpr uint64_t kFormatVersion = 1;

// Integers stay exact in readers that hold every number as a double.
inline constexpr uint64_t kMaxInteger = (uint64_t{1} << 53) - 1;
inline constexpr int kMaxJsonDepth = 8;                      // a whole document
inline constexpr int kMaxEmbeddedDepth = kMaxJsonDepth - 1;  // an object that becomes a field of one
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxDimensions = 64;  // torch's own limit, and numpy's since 2.0

// One for each process of a deployment. A list without an end would take a reader many times its text in memory.
inline constexpr size_t kMaxShards = 65536;

// What one row takes at least in the text of a manifest, commas included: `[],"U8",0,"a",0,0,"",[],[],` and
// `"00000000",0,0,"<64 digits>",`. So a text has at most its size divided by these, and no reader makes room for more.
inline constexpr size_t kLeastTensorText = 27;
inline constexpr size_t kLeastExtentText = 82;

inline constexpr uint64_t kLargeExtentBytes = kLeafBytes;  // from here on an extent is a group of its own
inline constexpr uint64_t kGroupAlignment = kLeafBytes;    // groups start and end at multiples of this
inline constexpr uint64_t kSmallGroupBytes = 4 * kMiB;     // small extents share groups of at most this
inline constexpr uint64_t kSmallAlignment = 512;           // where a small extent may start in its group

// safetensors refuses longer headers (MAX_HEADER_SIZE); the length counts the padding, not the 8 bytes before it.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr uint64_t kHeaderPrefixBytes = 8;

}  // namespace coldsnap
