#include "cc/capture/source_digests.h"

#include <algorithm>
#include <utility>

#include "cc/base/units.h"

namespace coldsnap {
namespace {

// 32 MiB of large extents. A leaf takes the device 2 ms however few there are, so the more the better.
constexpr size_t kBatchLeaves = 512;
static_assert(kBatchLeaves <= kMaxHashRanges);
static_assert(kBatchLeaves * sizeof(LeafDigest) <= kLeafBytes);  // the least that a slot has

}  // namespace

void SourceDigests::Divide(const WritePlan& plan) {
  size_t leaves = kBatchLeaves;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const SourceSegment& segment = plan.segments[i];
    const uint64_t address = layout_.sources[segment.extent].address + segment.extent_offset;
    for (uint64_t done = 0; done < segment.nbytes;) {
      if (leaves == kBatchLeaves) {
        batches_.push_back(parts_.size());
        leaves = 0;
      }
      const uint64_t take = std::min((kBatchLeaves - leaves) * kLeafBytes, segment.nbytes - done);
      parts_.push_back({.segment = i, .offset = done, .range = {.address = address + done, .nbytes = take}});
      leaves += LeavesOf(take);
      done += take;
    }
  }
  batches_.push_back(parts_.size());
}

Status SourceDigests::Run(Crew& crew, const Sink& sink, const Tick& tick) {
  next_ = 0;
  done_bytes_ = 0;
  crew.Run(
      static_cast<int>(lanes_.size()), [&](int member) { Fail(RunMember(*lanes_[static_cast<size_t>(member)], sink)); },
      [&] {
        if (!stop_.load()) Fail(tick(done_bytes_.load()));
      });
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

Status SourceDigests::RunMember(Lane& lane, const Sink& sink) {
  RETURN_IF_ERROR(gpu_.MakeCurrent().WithStage("device"));  // kernels ask for it
  while (!stop_.load()) {
    const size_t batch = next_.fetch_add(1);
    if (batch + 1 >= batches_.size()) break;
    Result<EmptySlot> slot = ring_.Acquire();
    if (!slot.ok()) return std::move(slot).status().WithStage("device");
    const std::span<const Part> parts =
        std::span(parts_).subspan(batches_[batch], batches_[batch + 1] - batches_[batch]);
    Status status = HashBatch(lane, parts, *slot, sink);
    // The device may still write to the slot, so it goes back when the lane is empty.
    if (!status.ok()) static_cast<void>(lane.Drain());
    RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

Status SourceDigests::HashBatch(Lane& lane, std::span<const Part> parts, EmptySlot& slot, const Sink& sink) {
  std::vector<DeviceRange> ranges;
  ranges.reserve(parts.size());
  for (const Part& part : parts) ranges.push_back(part.range);
  auto* const digests = reinterpret_cast<LeafDigest*>(slot.bytes().data());
  RETURN_IF_ERROR(lane.HashLeaves(ranges, Verify::kCrc32Sha256, digests, slot.mark()).WithStage("device"));
  RETURN_IF_ERROR(slot.mark().Wait().WithStage("device"));
  size_t first = 0;
  for (const Part& part : parts) {
    const size_t leaves = LeavesOf(part.range.nbytes);
    RETURN_IF_ERROR(sink(part.segment, part.offset, {digests + first, leaves}));
    first += leaves;
    done_bytes_.fetch_add(part.range.nbytes);
  }
  return Status::Ok();
}

void SourceDigests::Fail(Status status) {
  if (status.ok()) return;
  stop_.store(true);
  const std::lock_guard lock(mutex_);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

}  // namespace coldsnap
