// Stage 2, the bounded memory between the file and the device: slots of pinned host memory, and who holds each.
//
// A slot's state is its type. EmptySlot: the holder may write its bytes. Sent: its copies are on their way and only the
// ring has it; Acquire() gives it out again after its mark says that they have been done. A slot that is dropped on the
// way, by an error say, finds its own way back, so Acquire() never waits for ever.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/gpu.h"

namespace coldsnap {

class Ring;

class EmptySlot {
 public:
  EmptySlot(EmptySlot&& other) noexcept;
  EmptySlot& operator=(EmptySlot&&) = delete;
  ~EmptySlot();  // gives it back, if it has not been sent

  std::span<std::byte> bytes() const;
  Mark& mark() const;
  // Its copies have been recorded on mark(): back to the ring.
  void Sent() &&;

 private:
  friend class Ring;
  EmptySlot(Ring* ring, size_t index) : ring_(ring), index_(index) {}
  Ring* ring_;
  size_t index_;
};

class Ring {
 public:
  // `slots` slots of `slot_bytes` (a multiple of 4096) in one pinned range. Where the range can't be pinned, the number
  // of slots is halved until it can, down to one; shrunk_because() then has the first error.
  static Result<std::unique_ptr<Ring>> Create(Gpu& gpu, int slots, uint64_t slot_bytes);
  // Waits for the copies that are still on their way before it unpins.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // From now on gives out only the first `slots`, at least 1 and no more than there are: fewer stay in the processor's
  // cache. Nobody may hold a slot.
  void Use(int slots);
  // The slot that was sent first, once its copies have been done. Blocks while every slot is in somebody's hands.
  Result<EmptySlot> Acquire();
  // Waits for every slot that was sent. Nobody may hold a slot.
  Status Drain();

  int slots() const { return static_cast<int>(marks_.size()); }  // that there are
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint64_t pinned_bytes() const { return memory_->bytes().size(); }
  const Status& shrunk_because() const { return shrunk_because_; }
  // The device's time over all copies that have been waited for since it was asked last, in seconds. Every eighth slot
  // is timed and stands for the others.
  double TakeCopySeconds();

 private:
  friend class EmptySlot;
  Ring(std::unique_ptr<PinnedMemory> memory, std::vector<std::unique_ptr<Mark>> marks, uint64_t slot_bytes);
  void GiveBack(size_t index, bool sent);
  Status WaitFor(size_t index);

  std::unique_ptr<PinnedMemory> memory_;
  std::vector<std::unique_ptr<Mark>> marks_;  // one a slot
  uint64_t slot_bytes_;
  Status shrunk_because_;

  mutable std::mutex mutex_;
  std::condition_variable given_back_;
  std::deque<size_t> free_;  // sent or never used, in the order in which they came back
  size_t used_;              // how many are given out at all
  std::vector<bool> in_flight_;
  struct Copies {
    uint64_t all = 0;
    uint64_t timed = 0;
    double timed_s = 0;
  } copies_;
};

}  // namespace coldsnap
