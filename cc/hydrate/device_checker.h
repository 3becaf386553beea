// Digests over the final memory: a thread lets the device hash what it has sent there, and compares.
//
// Works in batches, of which each thread has one that is being filled, one whose copies are on their way, and two that
// the device hashes. A leaf takes the device about 2 ms however few there are (hash_leaves.cu), so a restore ends that
// much later, whatever its size.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/verifier.h"

namespace coldsnap {

// What the checkers of one thread after the other use again: where the device writes digests, and the marks behind
// them.
class CheckDesks {
 public:
  // Of one batch.
  struct Tray {
    std::span<LeafDigest> digests;  // pinned
    std::unique_ptr<Mark> copied;
    std::unique_ptr<Mark> hashed;
  };
  using Desk = std::array<Tray, 4>;

  // At least `desks` from now on. Nobody may use one meanwhile.
  Status Grow(Gpu& gpu, size_t desks);
  Desk& operator[](size_t desk) { return desks_[desk]; }
  uint64_t pinned_bytes() const { return memory_ != nullptr ? memory_->bytes().size() : 0; }

 private:
  std::unique_ptr<PinnedMemory> memory_;
  std::vector<Desk> desks_;
};

// Of one thread.
class DeviceChecker {
 public:
  // All of them must outlive the checker, which leaves nothing in flight that lane.Drain() does not wait for.
  DeviceChecker(Lane& lane, CheckDesks::Desk& desk, Verifier& verifier)
      : lane_(lane),
        verifier_(verifier),
        batches_{Batch{.tray = desk[0]}, Batch{.tray = desk[1]}, Batch{.tray = desk[2]}, Batch{.tray = desk[3]}} {}

  // The lane has been given the copies of the segment's bytes, or `destination` has them already. Compares what was
  // added before, some of it.
  Status Add(size_t segment, const DeviceRange& destination);
  // Compares what is left.
  Status Finish();
  // Bytes that were compared since it was asked last.
  uint64_t TakeCheckedBytes();
  // The device's time over all batches.
  double busy_s() const { return busy_s_; }

 private:
  // Leaves of a segment, one after the other.
  struct Part {
    size_t segment = 0;
    uint64_t offset = 0;  // in it
    uint64_t nbytes = 0;
  };
  struct Batch {
    CheckDesks::Tray& tray;
    std::vector<DeviceRange> ranges;
    std::vector<Part> parts;  // as many
    size_t leaves = 0;
  };

  // The batch that was begun so many before the one that is being filled; it may be empty.
  Batch& Before(size_t batches) { return batches_[(filling_ + batches_.size() - batches) % batches_.size()]; }
  Status Close();
  Status Hash(Batch& batch);
  Status Collect(Batch& batch);

  Lane& lane_;
  Verifier& verifier_;
  std::array<Batch, 4> batches_;
  size_t filling_ = 0;
  uint64_t checked_bytes_ = 0;
  double busy_s_ = 0;
};

}  // namespace coldsnap
