#include "cc/hydrate/crew.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "cc/sys/numa.h"

namespace coldsnap {

Crew::Crew(std::string purpose, std::string remedy)
    : purpose_(std::move(purpose)), remedy_(std::move(remedy)), pid_(::getpid()), state_(std::make_unique<State>()) {}

Crew::~Crew() {
  if (::getpid() != pid_) {
    // Nobody is there to be joined, and destroying what the parent's threads wait for would wait for them.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->called.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

Status Crew::placement() const {
  std::unique_lock lock(state_->mutex);
  const auto all = [this] { return state_->placed == state_->threads.size(); };
  // In rounds for the reason that Ring::Acquire has.
  while (!state_->tried.wait_for(lock, std::chrono::hours(1), all)) continue;
  return state_->placement;
}

Status Crew::Grow(int members, std::optional<int> node) {
  std::vector<std::thread>& threads = state_->threads;
  while (std::cmp_less(threads.size(), members)) {
    try {
      threads.emplace_back([state = state_.get(), node, member = static_cast<int>(threads.size())] {
        Place(*state, node);
        Main(*state, member);
      });
    } catch (const std::system_error& error) {  // the container's limit of processes
      return Status(Code::kOutOfMemory,
                    StrCat("start thread ", threads.size() + 1, " of ", members, " for ", purpose_, ": ", error.what()))
          .WithStage("ring")
          .WithRemedy(remedy_ + " or raise the container's limit of processes");
    }
  }
  return Status::Ok();
}

void Crew::Place(State& state, std::optional<int> node) {
  Status status = node ? StayOnNode(*node) : Status::Ok();
  const std::lock_guard lock(state.mutex);
  if (state.placement.ok()) state.placement = std::move(status);
  ++state.placed;
  state.tried.notify_all();
}

void Crew::Main(State& state, int member) {
  uint64_t seen = 0;
  std::unique_lock lock(state.mutex);
  for (;;) {
    // In rounds for the reason that Ring::Acquire has.
    if (!state.called.wait_for(lock, std::chrono::hours(1), [&] { return state.over || state.round != seen; }))
      continue;
    if (state.over) return;
    seen = state.round;
    if (member >= state.members) continue;
    const std::function<void(int)>& work = *state.work;
    lock.unlock();
    work(member);
    lock.lock();
    if (--state.running == 0) state.ended.notify_one();
  }
}

void Crew::Run(int members, const std::function<void(int)>& work, const std::function<void()>& idle) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.work = &work;
  state.members = state.running = members;
  ++state.round;
  state.called.notify_all();
  while (!state.ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return state.running == 0; })) {
    lock.unlock();
    idle();
    if (::getpid() != pid_) {
      // `idle` forked and came back in the child, which would wait for threads that only its parent has.
      std::fprintf(stderr, "coldsnap: process %d was forked in a callback during %s and can't go on with it\n",
                   static_cast<int>(::getpid()), purpose_.c_str());
      std::_Exit(EXIT_FAILURE);
    }
    lock.lock();
  }
}

}  // namespace coldsnap
