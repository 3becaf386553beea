// One walk over the windows of a plan by several threads, each with a slot of the ring at a time.
//
// A thread does all of its window's work one after the other; that copies, digests and writes overlap is the threads'
// doing. A drive is kept busy by as many writes as there are threads, and hashing needs few of them at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "cc/base/status.h"
#include "cc/capture/plan.h"
#include "cc/hydrate/crew.h"
#include "cc/ring/ring.h"

namespace coldsnap {

class Pass {
 public:
  // A window's work, by thread `member`. The slot is the thread's until it returns; nothing may be in flight then.
  using Work = std::function<Status(int member, const BlobWindow& window, EmptySlot& slot)>;
  // As CaptureOptions::tick, with the bytes of this pass.
  using Tick = std::function<Status(uint64_t done_bytes)>;

  // All must outlive the pass.
  Pass(const WritePlan& plan, Ring& ring, Crew& crew) : plan_(plan), ring_(ring), crew_(crew) {}

  // Returns when all threads have ended: the first failure of any of them, or of `tick`, which the calling thread runs
  // about every 50 ms and once at the end.
  Status Run(int threads, const Work& work, const Tick& tick);

 private:
  Status RunMember(int member, const Work& work);
  void Fail(Status status);

  const WritePlan& plan_;
  Ring& ring_;
  Crew& crew_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards what follows
  Status first_failure_;
};

}  // namespace coldsnap
