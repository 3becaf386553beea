// Cuts what a restore needs out of the blob into windows: one read each, into one slot, with the segments that it
// carries to the destinations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/types.h"
#include "cc/base/units.h"

namespace coldsnap {

// Part of an extent inside a window. Begins at a multiple of kLeafBytes in its extent and ends at one or at the
// extent's end, so that leaves are never cut.
struct Segment {
  uint32_t extent = 0;
  uint64_t extent_offset = 0;
  uint64_t slot_offset = 0;
  uint64_t nbytes = 0;
};

struct Window {
  uint64_t file_offset = 0;  // a multiple of the alignment, as is nbytes
  uint64_t nbytes = 0;
  uint32_t first_segment = 0;
  uint32_t segments = 0;
};

// What a slot must hold for chunks of that size: three leaves at least, for a small extent anywhere, after both its
// ends have been moved to an alignment of up to one.
constexpr uint64_t SlotBytes(uint64_t chunk_bytes) { return std::max(chunk_bytes, 3 * kLeafBytes); }

struct ReadPlan {
  uint64_t slot_bytes = 0;  // every window fits
  std::vector<Window> windows;
  std::vector<Segment> segments;  // window by window; in each extent's own order too
  uint64_t read_bytes = 0;
};

inline std::span<const Segment> SegmentsOf(const ReadPlan& plan, const Window& window) {
  return std::span(plan.segments).subspan(window.first_segment, window.segments);
}

// Windows of at most `chunk_bytes` of wanted data (a multiple of kLeafBytes), in file order, that start and end at
// multiples of `alignment_bytes` (a power of two <= kLeafBytes). `wanted` are indices into `extents`, ascending.
ReadPlan PlanReads(std::span<const Extent> extents, std::span<const uint32_t> wanted, uint64_t chunk_bytes,
                   uint64_t alignment_bytes);

}  // namespace coldsnap
