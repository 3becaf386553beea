#include "cc/hydrate/device_checker.h"

#include <algorithm>
#include <utility>

#include "cc/base/units.h"

namespace coldsnap {
namespace {

// 16 MiB of large extents. A thread's share of PCIe takes 4 ms for them, so their digests end before the next ones
// begin (12 threads, 55 GB/s), and the last batch is a small part of the whole.
constexpr size_t kBatchLeaves = 256;
static_assert(kBatchLeaves <= kMaxHashRanges);

}  // namespace

Status CheckDesks::Grow(Gpu& gpu, size_t desks) {
  if (desks <= desks_.size()) return Status::Ok();
  desks_.clear();
  memory_.reset();
  const size_t trays = desks * std::tuple_size_v<Desk>;
  Result<std::unique_ptr<PinnedMemory>> memory = gpu.Pin(trays * kBatchLeaves * sizeof(LeafDigest));
  if (!memory.ok()) return std::move(memory).status().WithStage("ring");
  memory_ = *std::move(memory);
  auto* const digests = reinterpret_cast<LeafDigest*>(memory_->bytes().data());
  std::vector<Desk> made(desks);
  for (size_t i = 0; i < trays; ++i) {
    Tray& tray = made[i / std::tuple_size_v<Desk>][i % std::tuple_size_v<Desk>];
    tray.digests = std::span(digests + i * kBatchLeaves, kBatchLeaves);
    Result<std::unique_ptr<Mark>> copied = gpu.NewMark(false);
    if (!copied.ok()) return std::move(copied).status().WithStage("ring");
    tray.copied = *std::move(copied);
    Result<std::unique_ptr<Mark>> hashed = gpu.NewMark(true);
    if (!hashed.ok()) return std::move(hashed).status().WithStage("ring");
    tray.hashed = *std::move(hashed);
  }
  desks_ = std::move(made);
  return Status::Ok();
}

Status DeviceChecker::Add(size_t segment, const DeviceRange& destination) {
  for (uint64_t done = 0; done < destination.nbytes;) {
    Batch& batch = batches_[filling_];
    const uint64_t room = (kBatchLeaves - batch.leaves) * kLeafBytes;
    const uint64_t take = std::min(room, destination.nbytes - done);
    batch.ranges.push_back({.address = destination.address + done, .nbytes = take});
    batch.parts.push_back({.segment = segment, .offset = done, .nbytes = take});
    batch.leaves += LeavesOf(take);
    done += take;
    if (batch.leaves == kBatchLeaves) RETURN_IF_ERROR(Close());
  }
  return Status::Ok();
}

// Sends the full batch on its way, and the ones before it one station further.
Status DeviceChecker::Close() {
  Mark& copied = *batches_[filling_].tray.copied;
  RETURN_IF_ERROR(lane_.Begin(copied).WithStage("device"));
  RETURN_IF_ERROR(lane_.Record(copied).WithStage("device"));
  RETURN_IF_ERROR(Hash(Before(1)));
  RETURN_IF_ERROR(Collect(Before(3)));
  filling_ = (filling_ + 1) % batches_.size();
  return Status::Ok();
}

Status DeviceChecker::Hash(Batch& batch) {
  if (batch.leaves == 0) return Status::Ok();
  RETURN_IF_ERROR(batch.tray.copied->Wait().WithStage("device"));
  return lane_.HashLeaves(batch.ranges, verifier_.mode(), batch.tray.digests.data(), *batch.tray.hashed)
      .WithStage("device");
}

Status DeviceChecker::Collect(Batch& batch) {
  if (batch.leaves == 0) return Status::Ok();
  RETURN_IF_ERROR(batch.tray.hashed->Wait().WithStage("device"));
  busy_s_ += batch.tray.hashed->BusySeconds();
  std::span<const LeafDigest> digests = batch.tray.digests;
  for (const Part& part : batch.parts) {
    const size_t leaves = LeavesOf(part.nbytes);
    RETURN_IF_ERROR(verifier_.Compare(part.segment, part.offset, part.nbytes, digests.first(leaves)));
    digests = digests.subspan(leaves);
    checked_bytes_ += part.nbytes;
  }
  batch.ranges.clear();
  batch.parts.clear();
  batch.leaves = 0;
  return Status::Ok();
}

Status DeviceChecker::Finish() {
  if (batches_[filling_].leaves != 0) RETURN_IF_ERROR(Close());
  RETURN_IF_ERROR(Hash(Before(1)));
  for (size_t batches = batches_.size() - 1; batches > 0; --batches) RETURN_IF_ERROR(Collect(Before(batches)));
  return Status::Ok();
}

uint64_t DeviceChecker::TakeCheckedBytes() { return std::exchange(checked_bytes_, 0); }

}  // namespace coldsnap
