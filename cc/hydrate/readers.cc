#include "cc/hydrate/readers.h"

#include <algorithm>
#include <utility>

#include "cc/sys/clock.h"

namespace coldsnap {
namespace {

// A multiple of a leaf, small against a core's second-level cache (1 to 2 MiB on servers), large against a system call.
constexpr uint64_t kCacheBlockBytes = 256 * kKiB;

}  // namespace

Status Readers::Run(Crew& crew, const Hands& hands, const std::function<Status(uint64_t)>& tick) {
  const int readers = std::max(1, hands.read_and_send + hands.read);
  const int verifiers = std::max(1, hands.senders());
  reading_ = hands.read;
  const auto work = [&](int member) {
    Self self{.track = TrackOf(hands, member)};
    Fail(RunMember(hands, member, self));
    if (member >= hands.senders() && --reading_ == 0) filled_.End();
    const std::lock_guard lock(mutex_);
    read_s_ += self.read / readers;
    digest_s_ += self.digest / verifiers;
  };
  crew.Run(hands.all(), work, [&] {
    if (!stop_.load()) Fail(tick(done_bytes_.load()));
  });
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

Status Readers::RunMember(const Hands& hands, int member, Self& self) {
  // Kernels and cuFile ask for the thread's device.
  RETURN_IF_ERROR(job_.gpu.MakeCurrent().WithStage("device"));
  const auto index = static_cast<size_t>(member);
  if (index >= job_.lanes.size()) return Work(hands, member, self);
  self.lane = job_.lanes[index].get();
  std::optional<DeviceChecker> checker;
  if (job_.on_device != nullptr) self.checker = &checker.emplace(*self.lane, (*job_.desks)[index], *job_.on_device);
  Status status = Work(hands, member, self);
  if (status.ok() && checker) status = FinishChecks(self);
  const SpanScope span(self.track, "drain");
  Status drained = self.lane->Drain();  // also after a failure: nothing may be in flight when this thread ends
  return status.ok() ? std::move(drained).WithStage("device") : status;
}

Status Readers::Work(const Hands& hands, int member, Self& self) {
  if (member >= hands.senders()) return job_.gds != nullptr ? ReadPastHost(self) : ReadWindows(self);
  return member < hands.read_and_send ? ReadAndSend(self) : SendWindows(self);
}

Status Readers::FinishChecks(Self& self) {
  if (stop_.load()) return Status::Ok();
  const SpanScope span(self.track, "wait for digests");
  RETURN_IF_ERROR(self.checker->Finish());
  done_bytes_.fetch_add(self.checker->TakeCheckedBytes());
  self.digest += self.checker->busy_s();
  return Status::Ok();
}

Trace::Track* Readers::TrackOf(const Hands& hands, int member) {
  if (job_.trace == nullptr) return nullptr;
  if (member >= hands.senders()) return &job_.trace->TrackOf(member, "read");
  return &job_.trace->TrackOf(member, member < hands.read_and_send ? "read and send" : "send");
}

std::optional<uint32_t> Readers::Take(const Share& share, std::atomic<size_t>& next) {
  if (stop_.load()) return std::nullopt;
  const size_t index = next.fetch_add(1);
  if (index >= share.windows.size()) return std::nullopt;
  return share.windows[index];
}

Status Readers::ReadAndSend(Self& self) {
  while (const std::optional<uint32_t> index = Take(job_.buffered, next_buffered_)) {
    const Window& window = job_.plan.windows[*index];
    ASSIGN_OR_RETURN(EmptySlot slot, Acquire(window, self));
    RETURN_IF_ERROR(ReadInBlocks(window, slot, self));
    RETURN_IF_ERROR(Send(window, std::move(slot), self));
  }
  return Status::Ok();
}

Status Readers::ReadWindows(Self& self) {
  while (const std::optional<uint32_t> index = Take(job_.direct, next_direct_)) {
    const Window& window = job_.plan.windows[*index];
    ASSIGN_OR_RETURN(EmptySlot slot, Acquire(window, self));
    SpanScope span(self.track, "read", window.nbytes, IndexOf(window));
    Stopwatch watch;
    const std::span<std::byte> into = slot.bytes().first(window.nbytes);
    RETURN_IF_ERROR(job_.direct.reader->Read(into, window.file_offset).WithStage("file"));
    self.read += watch.Lap();
    span.End();
    filled_.Push({.slot = std::move(slot), .window = &window});
  }
  return Status::Ok();
}

Status Readers::ReadPastHost(Self& self) {
  while (const std::optional<uint32_t> index = Take(job_.direct, next_direct_)) {
    const Window& window = job_.plan.windows[*index];
    SpanScope span(self.track, "read", 0, IndexOf(window));
    Stopwatch watch;
    for (const Segment& segment : SegmentsOf(job_.plan, window)) {
      span.AddBytes(segment.nbytes);
      RETURN_IF_ERROR(
          job_.gds->Read(window.file_offset + segment.slot_offset, DestinationOf(segment)).WithStage("file"));
    }
    self.read += watch.Lap();
    span.End();
    RETURN_IF_ERROR(Landed(window, self));
  }
  return Status::Ok();
}

DeviceRange Readers::DestinationOf(const Segment& segment) const {
  return {.address = job_.ranges[segment.extent].address + segment.extent_offset, .nbytes = segment.nbytes};
}

Status Readers::SendWindows(Self& self) {
  while (std::optional<FilledSlot> filled = NextFilled(self)) {
    RETURN_IF_ERROR(VerifyWindow(*filled->window, filled->slot, self));
    RETURN_IF_ERROR(Send(*filled->window, std::move(filled->slot), self));
  }
  return Status::Ok();
}

// Waits for the oldest copy when every slot is out.
Result<EmptySlot> Readers::Acquire(const Window& window, const Self& self) {
  const SpanScope span(self.track, "wait for a slot", 0, IndexOf(window));
  Result<EmptySlot> slot = job_.ring->Acquire();
  if (!slot.ok()) return std::move(slot).status().WithStage("device");
  return slot;
}

std::optional<FilledSlot> Readers::NextFilled(const Self& self) {
  const SpanScope span(self.track, "wait for a read");
  return filled_.Pop();
}

Status Readers::VerifyWindow(const Window& window, const EmptySlot& slot, Self& self) {
  SpanScope span(self.track, "digest", 0, IndexOf(window));
  Stopwatch watch;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = job_.plan.segments[i];
    span.AddBytes(segment.nbytes);
    RETURN_IF_ERROR(job_.on_host.Check(i, 0, slot.bytes().subspan(segment.slot_offset, segment.nbytes)));
  }
  self.digest += watch.Lap();
  return Status::Ok();
}

// Reads on only when the digests have caught up, so that they find their bytes in the cache.
Status Readers::ReadInBlocks(const Window& window, const EmptySlot& slot, Self& self) {
  uint64_t filled = 0;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = job_.plan.segments[i];
    for (uint64_t done = 0; done < segment.nbytes;) {
      const uint64_t take = std::min(kCacheBlockBytes, segment.nbytes - done);
      const uint64_t needed = segment.slot_offset + done + take;
      Stopwatch watch;
      if (needed > filled) {
        const uint64_t nbytes = std::min(std::max(kCacheBlockBytes, needed - filled), window.nbytes - filled);
        const std::span<std::byte> into = slot.bytes().subspan(filled, nbytes);
        const SpanScope span(self.track, "read", nbytes, IndexOf(window));
        RETURN_IF_ERROR(job_.buffered.reader->Read(into, window.file_offset + filled).WithStage("file"));
        filled += nbytes;
        self.read += watch.Lap();
      }
      const SpanScope span(self.track, "digest", take, IndexOf(window));
      RETURN_IF_ERROR(job_.on_host.Check(i, done, slot.bytes().subspan(segment.slot_offset + done, take)));
      self.digest += watch.Lap();
      done += take;
    }
  }
  return Status::Ok();
}

Status Readers::Send(const Window& window, EmptySlot slot, Self& self) {
  std::vector<CopyIn> copies;
  copies.reserve(window.segments);
  uint64_t nbytes = 0;
  for (const Segment& segment : SegmentsOf(job_.plan, window)) {
    copies.push_back({.to = DestinationOf(segment), .from = slot.bytes().data() + segment.slot_offset});
    nbytes += segment.nbytes;
  }
  SpanScope span(self.track, "send", nbytes, IndexOf(window));
  const auto submit = [&]() -> Status {
    RETURN_IF_ERROR(self.lane->Begin(slot.mark()));
    RETURN_IF_ERROR(self.lane->CopyToDevice(copies));
    return self.lane->Record(slot.mark());
  };
  if (Status status = submit().WithStage("device"); !status.ok()) {
    // Some of its copies may be on their way with no mark behind them, so the slot goes back when the lane is empty.
    static_cast<void>(self.lane->Drain());
    return status;
  }
  std::move(slot).Sent();
  span.End();
  return Landed(window, self);
}

Status Readers::Landed(const Window& window, Self& self) {
  const SpanScope span(self.checker != nullptr ? self.track : nullptr, "let the device hash", 0, IndexOf(window));
  uint64_t nbytes = 0;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = job_.plan.segments[i];
    nbytes += segment.nbytes;
    if (self.checker != nullptr) RETURN_IF_ERROR(self.checker->Add(i, DestinationOf(segment)));
  }
  done_bytes_.fetch_add(self.checker != nullptr ? self.checker->TakeCheckedBytes() : nbytes);
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
