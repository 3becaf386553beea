// The threads of a restore: windows are read into slots, verified, and sent to the device.
//
// From the page cache one thread does all three, block by block, so that bytes are hashed while they are in its core's
// cache; then it goes on with the next slot while the copy travels. From the drive some threads only read, which keeps
// as many requests on their way as were asked for however slow the digests are, and others verify and send.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/filled_queue.h"
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

  // Moves every window, reading on at most `read_threads` threads, and returns when all threads have ended: the first
  // failure of any of them, or of `tick`, which the calling thread runs about every 50 ms with the bytes verified so
  // far, and once at the end.
  Status Run(int read_threads, const std::function<Status(uint64_t done_bytes)>& tick);

  // Mean over the threads of the stage.
  double read_s() const { return read_s_ / readers_; }
  double digest_s() const { return digest_s_ / verifiers_; }

 private:
  struct Times {
    double read = 0;
    double digest = 0;
  };
  enum class Role : uint8_t { kRead, kVerify, kBoth };

  bool Start(Role role, std::vector<std::thread>& threads);
  void RunThread(Role role);
  Status RunRole(Role role, Times& times);
  Status ReadWindows(Lane* lane, Times& times);
  Status VerifyWindows(Lane& lane, Times& times);
  Status ReadInBlocks(const Window& window, const EmptySlot& slot, Times& times);
  Status VerifyWindow(const Window& window, const EmptySlot& slot);
  Status Send(const Window& window, EmptySlot slot, Lane& lane);
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
  FilledQueue filled_;

  std::mutex mutex_;  // guards what follows, while threads run
  std::condition_variable ended_;
  int running_ = 0;
  int reading_ = 0;  // threads that may still fill slots
  Status first_failure_;
  double read_s_ = 0;
  double digest_s_ = 0;
  int readers_ = 1;
  int verifiers_ = 1;
};

}  // namespace coldsnap
