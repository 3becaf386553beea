// Cuts a blob into windows: one write each, from one slot, with the segments that it carries from the sources.
//
// The windows are the blob, each byte once, so that padding and the header are written like everything else, and each
// begins and ends at a multiple of 65536, so that every write suits direct I/O.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cc/artifact/layout.h"

namespace coldsnap {

// Part of an extent inside a window. Begins at a multiple of kLeafBytes in its extent and ends at one or at the
// extent's end, so that leaves are never cut.
struct SourceSegment {
  uint32_t extent = 0;
  uint64_t extent_offset = 0;
  uint64_t slot_offset = 0;
  uint64_t nbytes = 0;
};

struct BlobWindow {
  uint64_t file_offset = 0;
  uint64_t nbytes = 0;
  uint32_t first_segment = 0;
  uint32_t segments = 0;  // none: a part of the header
};

struct WritePlan {
  uint64_t slot_bytes = 0;  // every window fits
  std::vector<BlobWindow> windows;
  std::vector<SourceSegment> segments;  // window by window; in each extent's own order too
  uint64_t payload_bytes = 0;

  std::span<const SourceSegment> SegmentsOf(const BlobWindow& window) const {
    return std::span(segments).subspan(window.first_segment, window.segments);
  }
};

// Windows of `chunk_bytes` (a multiple of kLeafBytes), the last of the header and of the blob shorter. Small extents
// that lie on both sides of a multiple of 65536 stay together, so a window may be as large as their group: 4 MiB.
WritePlan PlanWrites(const Layout& layout, uint64_t chunk_bytes);

}  // namespace coldsnap
