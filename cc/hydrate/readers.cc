#include "cc/hydrate/readers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "cc/sys/clock.h"

namespace coldsnap {
namespace {

// A multiple of a leaf, small against a core's second-level cache (1 to 2 MiB on servers), large against a system call.
constexpr uint64_t kCacheBlockBytes = 256 * kKiB;

}  // namespace

Status Readers::Run(int threads, const std::function<Status(uint64_t)>& tick) {
  const int useful = static_cast<int>(std::min<size_t>(plan_.windows.size(), static_cast<size_t>(ring_.slots())));
  threads = std::min(threads, useful);
  std::vector<std::thread> started;
  for (int i = 0; i < threads; ++i) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    try {
      started.emplace_back([this] { RunThread(); });
    } catch (const std::system_error& error) {  // the container's limit of processes
      Fail(Status(Code::kOutOfMemory, StrCat("start reader thread ", i + 1, " of ", threads, ": ", error.what()))
               .WithStage("file")
               .WithRemedy("lower COLDSNAP_HYDRATION_READ_THREADS or raise the container's limit of processes"));
      const std::lock_guard lock(mutex_);
      --running_;
      break;
    }
  }
  threads_ = std::max(1, static_cast<int>(started.size()));
  {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(50), [this] { return running_ == 0; })) {
      lock.unlock();
      if (!stop_.load()) {
        if (Status status = tick(done_bytes_.load()); !status.ok()) Fail(std::move(status));
      }
      lock.lock();
    }
  }
  for (std::thread& thread : started) thread.join();
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

void Readers::RunThread() {
  Times times;
  Status status;
  {
    Result<std::unique_ptr<Lane>> lane = gpu_.OpenLane();
    status = lane.ok() ? RunWindows(**lane, times) : std::move(lane).status().WithStage("device");
    if (lane.ok()) {
      Status drained = (*lane)->Drain();  // also after a failure: nothing may be in flight when this thread ends
      if (status.ok()) status = std::move(drained).WithStage("device");
    }
  }
  Fail(std::move(status));
  const std::lock_guard lock(mutex_);
  read_s_ += times.read;
  digest_s_ += times.digest;
  --running_;
  ended_.notify_one();
}

Status Readers::RunWindows(Lane& lane, Times& times) {
  while (!stop_.load()) {
    const size_t index = next_window_.fetch_add(1);
    if (index >= plan_.windows.size()) break;
    RETURN_IF_ERROR(RunWindow(plan_.windows[index], lane, times));
  }
  return Status::Ok();
}

Status Readers::RunWindow(const Window& window, Lane& lane, Times& times) {
  Result<EmptySlot> acquired = ring_.Acquire();  // waits for the oldest copy when every slot is out
  if (!acquired.ok()) return std::move(acquired).status().WithStage("device");
  EmptySlot slot = *std::move(acquired);

  RETURN_IF_ERROR(ReadAndVerify(window, slot, times));
  RETURN_IF_ERROR(Send(window, slot, lane).WithStage("device"));
  std::move(slot).Sent();
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    done_bytes_.fetch_add(plan_.segments[i].nbytes);
  }
  return Status::Ok();
}

// From the page cache the bytes come in blocks that are still in the core's own cache when they are hashed: the digests
// then cost no memory traffic. A direct read is one request, as large as the drive likes it.
Status Readers::ReadAndVerify(const Window& window, const EmptySlot& slot, Times& times) {
  const uint64_t block_bytes = reader_.route() == Route::kBuffered ? kCacheBlockBytes : window.nbytes;
  uint64_t filled = 0;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = plan_.segments[i];
    for (uint64_t done = 0; done < segment.nbytes;) {
      const uint64_t take = std::min(block_bytes, segment.nbytes - done);
      const uint64_t needed = segment.slot_offset + done + take;
      Stopwatch watch;
      if (needed > filled) {
        const uint64_t nbytes = std::min(std::max(block_bytes, needed - filled), window.nbytes - filled);
        RETURN_IF_ERROR(
            reader_.Read(slot.bytes().subspan(filled, nbytes), window.file_offset + filled).WithStage("file"));
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

Status Readers::Send(const Window& window, const EmptySlot& slot, Lane& lane) {
  RETURN_IF_ERROR(lane.Begin(slot.mark()));
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = plan_.segments[i];
    const DeviceRange to{.address = ranges_[segment.extent].address + segment.extent_offset, .nbytes = segment.nbytes};
    RETURN_IF_ERROR(lane.CopyToDevice(to, slot.bytes().data() + segment.slot_offset));
  }
  return lane.Record(slot.mark());
}

void Readers::Fail(Status status) {
  if (status.ok()) return;
  stop_.store(true);
  const std::lock_guard lock(mutex_);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

}  // namespace coldsnap
