#include "cc/capture/plan.h"

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/units.h"

namespace coldsnap {
namespace {

class Planner {
 public:
  Planner(const Layout& layout, uint64_t chunk_bytes) : layout_(layout), chunk_bytes_(chunk_bytes) {}

  WritePlan Plan() && {
    for (uint64_t at = 0; at < layout_.data_start; at += chunk_bytes_) {
      plan_.windows.push_back({.file_offset = at, .nbytes = std::min(chunk_bytes_, layout_.data_start - at)});
    }
    at_ = layout_.data_start;
    for (size_t i = 0; i < layout_.sources.size();) {
      const size_t end = RunEnd(i);
      if (end == i + 1) {
        AddLarge(i);
      } else {
        AddRun(i, end);
      }
      i = end;
    }
    Close(layout_.blob_bytes);
    for (const BlobWindow& window : plan_.windows) plan_.slot_bytes = std::max(plan_.slot_bytes, window.nbytes);
    return std::move(plan_);
  }

 private:
  // The first extent from `first` on that begins at a multiple of 65536, where a window may begin.
  size_t RunEnd(size_t first) const {
    size_t end = first + 1;
    while (end < layout_.sources.size() && !IsAligned(layout_.file_offsets[end], kLeafBytes)) ++end;
    return end;
  }

  // An extent that has its leaves to itself: in pieces that fill the windows.
  void AddLarge(size_t extent) {
    const uint64_t nbytes = layout_.sources[extent].nbytes;
    for (uint64_t done = 0; done < nbytes;) {
      const uint64_t start = layout_.file_offsets[extent] + done;
      const uint64_t room = at_ + chunk_bytes_ - start;
      if (start >= at_ + chunk_bytes_) {
        Close(start);
        continue;
      }
      const uint64_t take = std::min(nbytes - done, room);
      Append(extent, done, take);
      done += take;
    }
  }

  // Extents that share leaves of the file: whole, in one window.
  void AddRun(size_t first, size_t end) {
    const uint64_t begin = layout_.file_offsets[first];
    const uint64_t run_end = AlignUp(layout_.file_offsets[end - 1] + layout_.sources[end - 1].nbytes, kLeafBytes);
    if (run_end > at_ + chunk_bytes_) Close(begin);
    for (size_t i = first; i < end; ++i) Append(i, 0, layout_.sources[i].nbytes);
  }

  void Append(size_t extent, uint64_t extent_offset, uint64_t nbytes) {
    plan_.segments.push_back({.extent = static_cast<uint32_t>(extent),
                              .extent_offset = extent_offset,
                              .slot_offset = layout_.file_offsets[extent] + extent_offset - at_,
                              .nbytes = nbytes});
    plan_.payload_bytes += nbytes;
  }

  // Ends the open window at `end`, where the next one begins.
  void Close(uint64_t end) {
    COLDSNAP_CHECK(IsAligned(end, kLeafBytes) && end >= at_);
    if (end == at_) return;
    const auto segments = static_cast<uint32_t>(plan_.segments.size());
    plan_.windows.push_back({.file_offset = at_,
                             .nbytes = end - at_,
                             .first_segment = first_segment_,
                             .segments = segments - first_segment_});
    first_segment_ = segments;
    at_ = end;
  }

  const Layout& layout_;
  uint64_t chunk_bytes_;
  WritePlan plan_;
  uint64_t at_ = 0;  // where the open window begins in the file
  uint32_t first_segment_ = 0;
};

}  // namespace

WritePlan PlanWrites(const Layout& layout, uint64_t chunk_bytes) {
  COLDSNAP_CHECK(chunk_bytes >= kLeafBytes && IsAligned(chunk_bytes, kLeafBytes));
  return Planner(layout, chunk_bytes).Plan();
}

}  // namespace coldsnap
