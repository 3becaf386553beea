#include "cc/hydrate/readers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include "cc/sys/clock.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

// A multiple of a leaf, small against a core's second-level cache (1 to 2 MiB on servers), large against a system call.
constexpr uint64_t kCacheBlockBytes = 256 * kKiB;

}  // namespace

Status Readers::Run(int read_threads, const std::function<Status(uint64_t)>& tick) {
  // More threads than slots or windows would only wait.
  const int useful = static_cast<int>(std::min<size_t>(plan_.windows.size(), static_cast<size_t>(ring_.slots())));
  const bool apart = reader_.route() == Route::kDirect;
  readers_ = std::max(1, std::min(read_threads, useful));
  verifiers_ = apart ? std::max(1, std::min(UsableCpus(), useful)) : readers_;
  reading_ = readers_;

  std::vector<std::thread> threads;
  bool started = true;
  for (int i = 0; started && i < readers_; ++i) started = Start(apart ? Role::kRead : Role::kBoth, threads);
  for (int i = 0; started && apart && i < verifiers_; ++i) started = Start(Role::kVerify, threads);
  {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(50), [this] { return running_ == 0; })) {
      lock.unlock();
      if (!stop_.load()) Fail(tick(done_bytes_.load()));
      lock.lock();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

bool Readers::Start(Role role, std::vector<std::thread>& threads) {
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  try {
    threads.emplace_back([this, role] { RunThread(role); });
    return true;
  } catch (const std::system_error& error) {  // the container's limit of processes
    Fail(Status(Code::kOutOfMemory, StrCat("start thread ", threads.size() + 1, " of a restore: ", error.what()))
             .WithStage("file")
             .WithRemedy("lower COLDSNAP_HYDRATION_READ_THREADS or raise the container's limit of processes"));
  }
  const std::lock_guard lock(mutex_);
  --running_;
  return false;
}

void Readers::RunThread(Role role) {
  Times times;
  Fail(RunRole(role, times));
  const std::lock_guard lock(mutex_);
  read_s_ += times.read;
  digest_s_ += times.digest;
  if (role != Role::kVerify && --reading_ == 0) filled_.End();
  --running_;
  ended_.notify_one();
}

Status Readers::RunRole(Role role, Times& times) {
  if (role == Role::kRead) return ReadWindows(nullptr, times);
  Result<std::unique_ptr<Lane>> lane = gpu_.OpenLane();
  if (!lane.ok()) return std::move(lane).status().WithStage("device");
  Status status = role == Role::kBoth ? ReadWindows(lane->get(), times) : VerifyWindows(**lane, times);
  Status drained = (*lane)->Drain();  // also after a failure: nothing may be in flight when this thread ends
  return status.ok() ? std::move(drained).WithStage("device") : status;
}

// With a lane this thread verifies and sends as well; without, that is for others.
Status Readers::ReadWindows(Lane* lane, Times& times) {
  while (!stop_.load()) {
    const size_t index = next_window_.fetch_add(1);
    if (index >= plan_.windows.size()) break;
    const Window& window = plan_.windows[index];
    Result<EmptySlot> acquired = ring_.Acquire();  // waits for the oldest copy when every slot is out
    if (!acquired.ok()) return std::move(acquired).status().WithStage("device");
    EmptySlot slot = *std::move(acquired);
    if (lane != nullptr) {
      RETURN_IF_ERROR(ReadInBlocks(window, slot, times));
      RETURN_IF_ERROR(Send(window, std::move(slot), *lane));
      continue;
    }
    Stopwatch watch;
    RETURN_IF_ERROR(reader_.Read(slot.bytes().first(window.nbytes), window.file_offset).WithStage("file"));
    times.read += watch.Lap();
    filled_.Push({.slot = std::move(slot), .window = &window});
  }
  return Status::Ok();
}

Status Readers::VerifyWindows(Lane& lane, Times& times) {
  while (std::optional<FilledSlot> filled = filled_.Pop()) {
    Stopwatch watch;
    RETURN_IF_ERROR(VerifyWindow(*filled->window, filled->slot));
    times.digest += watch.Lap();
    RETURN_IF_ERROR(Send(*filled->window, std::move(filled->slot), lane));
  }
  return Status::Ok();
}

Status Readers::VerifyWindow(const Window& window, const EmptySlot& slot) {
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = plan_.segments[i];
    RETURN_IF_ERROR(verifier_.Check(i, 0, slot.bytes().subspan(segment.slot_offset, segment.nbytes)));
  }
  return Status::Ok();
}

// Reads on only when the digests have caught up, so that they find their bytes in the cache.
Status Readers::ReadInBlocks(const Window& window, const EmptySlot& slot, Times& times) {
  uint64_t filled = 0;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = plan_.segments[i];
    for (uint64_t done = 0; done < segment.nbytes;) {
      const uint64_t take = std::min(kCacheBlockBytes, segment.nbytes - done);
      const uint64_t needed = segment.slot_offset + done + take;
      Stopwatch watch;
      if (needed > filled) {
        const uint64_t nbytes = std::min(std::max(kCacheBlockBytes, needed - filled), window.nbytes - filled);
        const std::span<std::byte> into = slot.bytes().subspan(filled, nbytes);
        RETURN_IF_ERROR(reader_.Read(into, window.file_offset + filled).WithStage("file"));
        filled += nbytes;
        times.read += watch.Lap();
      }
      RETURN_IF_ERROR(verifier_.Check(i, done, slot.bytes().subspan(segment.slot_offset + done, take)));
      times.digest += watch.Lap();
      done += take;
    }
  }
  return Status::Ok();
}

Status Readers::Send(const Window& window, EmptySlot slot, Lane& lane) {
  const auto submit = [&]() -> Status {
    RETURN_IF_ERROR(lane.Begin(slot.mark()));
    for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
      const Segment& segment = plan_.segments[i];
      const DeviceRange to{.address = ranges_[segment.extent].address + segment.extent_offset,
                           .nbytes = segment.nbytes};
      RETURN_IF_ERROR(lane.CopyToDevice(to, slot.bytes().data() + segment.slot_offset));
      done_bytes_.fetch_add(segment.nbytes);
    }
    return lane.Record(slot.mark());
  };
  if (Status status = submit().WithStage("device"); !status.ok()) {
    // Some of its copies may be on their way with no mark behind them, so the slot goes back when the lane is empty.
    static_cast<void>(lane.Drain());
    return status;
  }
  std::move(slot).Sent();
  return Status::Ok();
}

void Readers::Fail(Status status) {
  if (status.ok()) return;
  stop_.store(true);
  filled_.Abandon();
  const std::lock_guard lock(mutex_);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

}  // namespace coldsnap
