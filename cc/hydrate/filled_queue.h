// Slots that have been read and wait to be verified and sent: from the reader threads to the verifying ones.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "cc/hydrate/plan.h"
#include "cc/ring/ring.h"

namespace coldsnap {

struct FilledSlot {
  EmptySlot slot;  // the holder may read it now
  const Window* window;
};

class FilledQueue {
 public:
  // After Abandon() the slot goes straight back to the ring.
  void Push(FilledSlot filled) {
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_) return;
      waiting_.push_back(std::move(filled));
    }
    changed_.notify_one();
  }

  // The slot that was read first; nothing once no more will come. Blocks in between.
  std::optional<FilledSlot> Pop() {
    std::unique_lock lock(mutex_);
    // In rounds for the reason that Ring::Acquire has.
    while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return ended_ || !waiting_.empty(); })) {
    }
    if (waiting_.empty()) return std::nullopt;
    std::optional<FilledSlot> filled(std::move(waiting_.front()));
    waiting_.pop_front();
    return filled;
  }

  // Every reader has ended: what waits is the rest.
  void End() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }

  // The restore has failed: what waits goes back to the ring, so that no reader waits for a slot for ever.
  void Abandon() {
    std::deque<FilledSlot> dropped;
    {
      const std::lock_guard lock(mutex_);
      ended_ = abandoned_ = true;
      dropped.swap(waiting_);
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FilledSlot> waiting_;
  bool ended_ = false;
  bool abandoned_ = false;
};

}  // namespace coldsnap
