#include "cc/hydrate/plan.h"

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/units.h"

namespace coldsnap {
namespace {

class Planner {
 public:
  Planner(uint64_t chunk_bytes, uint64_t alignment_bytes)
      : chunk_bytes_(chunk_bytes), alignment_bytes_(alignment_bytes) {
    plan_.slot_bytes = SlotBytes(chunk_bytes);
  }

  void Add(uint32_t index, const Extent& extent) {
    for (uint64_t done = 0; done < extent.nbytes;) {
      const uint64_t take = Room(extent, done);
      if (take == 0) {
        Close();
        continue;
      }
      Append(index, extent, done, take);
      done += take;
    }
  }

  ReadPlan Finish() && {
    Close();
    return std::move(plan_);
  }

 private:
  // How much of the extent from `done` on the open window still takes: all of it, or whole leaves, or nothing.
  uint64_t Room(const Extent& extent, uint64_t done) const {
    const uint64_t start = extent.file_offset + done;
    const uint64_t rest = extent.nbytes - done;
    // A wide gap (extents that nobody wants) is not worth reading: 64 KiB, as much as padding ever takes.
    if (open_ && start - end_ > kLeafBytes) return 0;
    const uint64_t begin = open_ ? begin_ : AlignDown(start, alignment_bytes_);
    const uint64_t limit =
        std::min(begin + plan_.slot_bytes, (open_ ? first_ : start) + std::max(chunk_bytes_, kLeafBytes));
    if (AlignUp(start + rest, alignment_bytes_) <= begin + plan_.slot_bytes && start + rest <= limit) return rest;
    return limit > start ? AlignDown(limit - start, kLeafBytes) : 0;
  }

  void Append(uint32_t index, const Extent& extent, uint64_t done, uint64_t take) {
    const uint64_t start = extent.file_offset + done;
    if (!open_) {
      open_ = true;
      first_ = start;
      begin_ = AlignDown(start, alignment_bytes_);
      window_ = {.file_offset = begin_, .first_segment = static_cast<uint32_t>(plan_.segments.size())};
    }
    plan_.segments.push_back({.extent = index, .extent_offset = done, .slot_offset = start - begin_, .nbytes = take});
    ++window_.segments;
    end_ = start + take;
  }

  void Close() {
    if (!open_) return;
    open_ = false;
    window_.nbytes = AlignUp(end_, alignment_bytes_) - begin_;
    COLDSNAP_CHECK(window_.nbytes <= plan_.slot_bytes);
    plan_.read_bytes += window_.nbytes;
    plan_.windows.push_back(window_);
  }

  uint64_t chunk_bytes_;
  uint64_t alignment_bytes_;
  ReadPlan plan_;
  bool open_ = false;
  Window window_;
  uint64_t begin_ = 0;  // of the open window in the file, aligned
  uint64_t first_ = 0;  // its first wanted byte
  uint64_t end_ = 0;    // behind its last wanted byte
};

}  // namespace

ReadPlan PlanReads(std::span<const Extent> extents, std::span<const uint32_t> wanted, uint64_t chunk_bytes,
                   uint64_t alignment_bytes) {
  COLDSNAP_CHECK(chunk_bytes >= kLeafBytes && IsAligned(chunk_bytes, kLeafBytes));
  COLDSNAP_CHECK(alignment_bytes >= 1 && alignment_bytes <= kLeafBytes);
  Planner planner(chunk_bytes, alignment_bytes);
  for (const uint32_t index : wanted) planner.Add(index, extents[index]);
  return std::move(planner).Finish();
}

}  // namespace coldsnap
