// What each thread of a restore did, and when, for Perfetto and chrome://tracing.
//
// A trace has a track for each thread, and a track has spans. Any thread may add to any track, and read the trace, at
// any time. A trace may outlive its restores and take in several, one after the other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/hydrate/nvtx.h"

namespace coldsnap {

class Trace {
 public:
  static constexpr uint64_t kMaxSpans = 1'000'000;  // about 40 MB; what comes after them is counted and not kept
  static constexpr int kCaller = -1;                // in place of a member: the thread that called Hydrate
  static constexpr int64_t kNoWindow = -1;

  struct Span {
    const char* name = "";  // a literal
    int64_t begin_ns = 0;   // of NowNs()
    int64_t end_ns = 0;
    uint64_t nbytes = 0;
    int64_t window = kNoWindow;  // of the plan, by index
  };

  class Track {
   public:
    explicit Track(Trace& trace) : trace_(trace) {}
    void Add(const Span& span);

   private:
    friend class Trace;
    Trace& trace_;
    mutable std::mutex mutex_;  // nobody waits for it but a reader of the trace: a track is one thread's
    std::vector<Span> spans_;
  };

  explicit Trace(uint64_t max_spans = kMaxSpans) : max_spans_(max_spans) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // On the monotonic clock, as std::chrono::steady_clock and Python's time.monotonic_ns() have it.
  static int64_t NowNs();

  // The track of that member of the crew in that role; it lives as long as the trace.
  Track& TrackOf(int member, const std::string& role);

  struct Thread {
    std::string name;  // "read 3": role and member; the caller has its role alone
    std::vector<Span> spans;
  };
  std::vector<Thread> Threads() const;  // by member
  uint64_t dropped() const;
  // In Chrome's trace event format: complete events ("X") with times in microseconds, and the threads' names.
  std::string ToJson() const;

 private:
  const uint64_t max_spans_;
  std::atomic<uint64_t> added_ = 0;
  mutable std::mutex mutex_;  // guards the map, and not the tracks in it
  std::map<std::pair<int, std::string>, Track> tracks_;
};

inline int64_t Trace::NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A span from here to the end of the scope, for the track if there is one, and for NVIDIA's tools.
class SpanScope {
 public:
  SpanScope(Trace::Track* track, const char* name, uint64_t nbytes = 0, int64_t window = Trace::kNoWindow)
      : track_(track), span_{.name = name, .nbytes = nbytes, .window = window} {
    nvtx::Push(name);
    if (track_ != nullptr) span_.begin_ns = Trace::NowNs();
  }
  ~SpanScope() { End(); }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

  void AddBytes(uint64_t nbytes) { span_.nbytes += nbytes; }
  // Ends the span here, and for good.
  void End() {
    if (std::exchange(ended_, true)) return;
    Finish();
  }
  // Ends the span here, where the next one begins.
  void Next(const char* name) {
    if (ended_) return;
    Finish();
    nvtx::Push(name);
    span_ = {.name = name, .begin_ns = span_.end_ns};
  }

 private:
  void Finish() {
    nvtx::Pop();
    if (track_ == nullptr) return;
    span_.end_ns = Trace::NowNs();
    track_->Add(span_);
  }

  Trace::Track* track_;
  Trace::Span span_;
  bool ended_ = false;
};

}  // namespace coldsnap
