// Ends the program, with the case's name, when a case takes too long: a flow that hangs under a fault is a failure.
// Says the name too when a broken invariant of the core ends it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace coldsnap {

class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { Run(); }) {
    std::signal(SIGABRT, [](int) {
      for (const std::string_view text : {std::string_view("fault matrix: it was in "), std::string_view(shown_)}) {
        if (::write(STDERR_FILENO, text.data(), text.size()) < 0) break;
      }
      std::signal(SIGABRT, SIG_DFL);
    });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The case that runs from now on.
  void Watch(std::string name) {
    const std::lock_guard lock(mutex_);
    std::snprintf(shown_, sizeof(shown_), "%s\n", name.c_str());
    name_ = std::move(name);
    deadline_ = std::chrono::steady_clock::now() + limit_;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return ended_; })) {
      if (std::chrono::steady_clock::now() < deadline_) continue;
      std::fprintf(stderr, "fault matrix: hangs in %s\n", name_.c_str());
      std::abort();
    }
  }

  // What a signal handler may read.
  static inline char shown_[512] = "no case\n";

  std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string name_ = "nothing yet";
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + limit_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace coldsnap
