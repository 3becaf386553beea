// Seconds on the monotonic clock: the one clock behind every time in a report.
#pragma once

#include <chrono>

namespace coldsnap {

class Stopwatch {
 public:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Seconds since the last lap (or the start), and begins the next.
  double Lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace coldsnap
