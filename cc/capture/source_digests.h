// Digests of all that is captured, computed by the device over the sources themselves.
//
// The processors' caches and memory stay the drive's: a capture on an H200 is as fast as plain direct writes
// (bench/results/nvidia-h200-capture.json). What a copy or the staging memory gets wrong differs from these digests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/capture/plan.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/crew.h"
#include "cc/ring/ring.h"

namespace coldsnap {

class SourceDigests {
 public:
  // Gets leaves of segment `index`, from `offset` in it, from any thread.
  using Sink = std::function<Status(size_t index, uint64_t offset, std::span<const LeafDigest> leaves)>;

  // As CaptureOptions::tick, with the bytes of this pass.
  using Tick = std::function<Status(uint64_t done_bytes)>;

  // All must outlive the object. Digests are written to slots of the ring, which nobody else may use meanwhile.
  SourceDigests(const Layout& layout, const WritePlan& plan, Gpu& gpu, Ring& ring,
                std::span<const std::unique_ptr<Lane>> lanes)
      : layout_(layout), gpu_(gpu), ring_(ring), lanes_(lanes) {
    Divide(plan);
  }

  // Digests everything once, by as many threads as there are lanes, and returns with nothing in flight: the first
  // failure of a thread, of `sink` or of `tick`, which the calling thread runs about every 50 ms and once at the end.
  Status Run(Crew& crew, const Sink& sink, const Tick& tick);

 private:
  // Leaves of a segment, one after the other.
  struct Part {
    size_t segment = 0;
    uint64_t offset = 0;
    DeviceRange range;
  };
  void Divide(const WritePlan& plan);
  Status RunMember(Lane& lane, const Sink& sink);
  Status HashBatch(Lane& lane, std::span<const Part> parts, EmptySlot& slot, const Sink& sink);
  void Fail(Status status);

  const Layout& layout_;
  Gpu& gpu_;
  Ring& ring_;
  std::span<const std::unique_ptr<Lane>> lanes_;
  std::vector<Part> parts_;
  std::vector<size_t> batches_;  // where each begins in parts_, and the end
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards what follows
  Status first_failure_;
};

}  // namespace coldsnap
