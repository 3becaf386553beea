// Threads that wait for work, so that only the first of many rounds starts any.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/status.h"

namespace coldsnap {

// Of the process that made it: a forked child has none of the threads, and all that it may do is to destroy the object.
class Crew {
 public:
  // What the threads are for ("restores"), in messages, and what helps where they can't be started.
  explicit Crew(std::string purpose = "restores", std::string remedy = "lower COLDSNAP_HYDRATION_READ_THREADS");
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // At least `members` threads from now on, on the processors of that node of the machine if there is one.
  // kOutOfMemory where the container allows no more.
  Status Grow(int members, std::optional<int> node = std::nullopt);
  // Why a thread could not stay on its node; ok if all do. Waits until each has tried.
  Status placement() const;
  // Calls work(0) to work(members - 1), each on its own thread, and `idle` about every 50 ms on the calling one;
  // returns when all of them have returned. One at a time.
  void Run(int members, const std::function<void(int)>& work, const std::function<void()>& idle);

  pid_t pid() const { return pid_; }

 private:
  struct State {
    std::vector<std::thread> threads;

    std::mutex mutex;  // guards what follows
    std::condition_variable called;
    std::condition_variable ended;
    std::condition_variable tried;
    const std::function<void(int)>* work = nullptr;
    uint64_t round = 0;
    int members = 0;  // of this round
    int running = 0;
    bool over = false;
    size_t placed = 0;  // threads that are where they stay
    Status placement;
  };
  static void Place(State& state, std::optional<int> node);
  static void Main(State& state, int member);

  const std::string purpose_;
  const std::string remedy_;
  const pid_t pid_;
  std::unique_ptr<State> state_;
};

}  // namespace coldsnap
