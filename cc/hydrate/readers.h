// The threads of a restore: each takes the next window, reads it into a slot and verifies it on the way, then sends its
// segments to the device and goes on with the next slot while they travel.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/plan.h"
#include "cc/hydrate/verifier.h"
#include "cc/ring/ring.h"

namespace coldsnap {

class Readers {
 public:
  // All of them must outlive the readers. `ranges` are the destinations by extent.
  Readers(const BlobReader& reader, const ReadPlan& plan, std::span<const DeviceRange> ranges, Ring& ring, Gpu& gpu,
          Verifier& verifier)
      : reader_(reader), plan_(plan), ranges_(ranges), ring_(ring), gpu_(gpu), verifier_(verifier) {}

  // Runs every window on at most `threads` threads and returns when all have ended: the first failure of any of them,
  // or of `tick`, which the calling thread runs about every 50 ms with the bytes verified so far, and once at the end.
  Status Run(int threads, const std::function<Status(uint64_t done_bytes)>& tick);

  double read_s() const { return read_s_ / threads_; }      // mean over threads
  double digest_s() const { return digest_s_ / threads_; }  // likewise

 private:
  struct Times {
    double read = 0;
    double digest = 0;
  };
  void RunThread();
  Status RunWindows(Lane& lane, Times& times);
  Status RunWindow(const Window& window, Lane& lane, Times& times);
  Status ReadAndVerify(const Window& window, const EmptySlot& slot, Times& times);
  Status Send(const Window& window, const EmptySlot& slot, Lane& lane);
  void Fail(Status status);

  const BlobReader& reader_;
  const ReadPlan& plan_;
  std::span<const DeviceRange> ranges_;
  Ring& ring_;
  Gpu& gpu_;
  Verifier& verifier_;

  std::atomic<size_t> next_window_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;  // guards what follows, while threads run
  std::condition_variable ended_;
  int running_ = 0;
  Status first_failure_;
  double read_s_ = 0;
  double digest_s_ = 0;
  int threads_ = 1;
};

}  // namespace coldsnap
