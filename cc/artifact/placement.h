// Where each extent lies in the blob: groups that start and end at multiples of 65536 (docs/format.md, "Placement").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/artifact/limits.h"
#include "cc/base/status.h"

namespace coldsnap {

constexpr bool IsLarge(uint64_t nbytes) { return nbytes >= kLargeExtentBytes; }

// Small extents that share one run of the blob.
struct SmallGroup {
  size_t first_extent = 0;
  size_t end_extent = 0;  // one past the last
  uint64_t begin = 0;     // relative to the start of the data
  uint64_t end = 0;       // padding included
};

struct Placement {
  std::vector<uint64_t> offsets;  // of each extent, relative to the start of the data
  size_t large_count = 0;         // extents [0, large_count) are groups of their own
  std::vector<SmallGroup> small_groups;
  uint64_t data_bytes = 0;  // padding included
};

// `nbytes` of the extents in their order. kRequestInvalid when an extent is empty, a large one stands after a small
// one, or the whole passes 2^53-1 bytes.
Result<Placement> PlaceExtents(std::span<const uint64_t> nbytes);

}  // namespace coldsnap
