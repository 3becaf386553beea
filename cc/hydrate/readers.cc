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
  const int verifiers = std::max(1, hands.lanes());
  reading_ = hands.read;
  const auto work = [&](int member) {
    Times times{.track = TrackOf(hands, member)};
    Fail(RunMember(hands, member, times));
    if (member >= hands.lanes() && --reading_ == 0) filled_.End();
    const std::lock_guard lock(mutex_);
    read_s_ += times.read / readers;
    digest_s_ += times.digest / verifiers;
  };
  crew.Run(hands.all(), work, [&] {
    if (!stop_.load()) Fail(tick(done_bytes_.load()));
  });
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

Status Readers::RunMember(const Hands& hands, int member, Times& times) {
  if (member >= hands.lanes()) return gds_ != nullptr ? ReadPastHost(times) : ReadWindows(times);
  Lane& lane = *lanes_[static_cast<size_t>(member)];
  Status status = member < hands.read_and_send ? ReadAndSend(lane, times) : SendWindows(lane, times);
  const SpanScope span(times.track, "drain");
  Status drained = lane.Drain();  // also after a failure: nothing may be in flight when this thread ends
  return status.ok() ? std::move(drained).WithStage("device") : status;
}

Trace::Track* Readers::TrackOf(const Hands& hands, int member) {
  if (trace_ == nullptr) return nullptr;
  if (member >= hands.lanes()) return &trace_->TrackOf(member, "read");
  return &trace_->TrackOf(member, member < hands.read_and_send ? "read and send" : "send");
}

std::optional<uint32_t> Readers::Take(const Share& share, std::atomic<size_t>& next) {
  if (stop_.load()) return std::nullopt;
  const size_t index = next.fetch_add(1);
  if (index >= share.windows.size()) return std::nullopt;
  return share.windows[index];
}

Status Readers::ReadAndSend(Lane& lane, Times& times) {
  while (const std::optional<uint32_t> index = Take(buffered_, next_buffered_)) {
    const Window& window = plan_.windows[*index];
    ASSIGN_OR_RETURN(EmptySlot slot, Acquire(window, times));
    RETURN_IF_ERROR(ReadInBlocks(window, slot, times));
    RETURN_IF_ERROR(Send(window, std::move(slot), lane, times));
  }
  return Status::Ok();
}

Status Readers::ReadWindows(Times& times) {
  while (const std::optional<uint32_t> index = Take(direct_, next_direct_)) {
    const Window& window = plan_.windows[*index];
    ASSIGN_OR_RETURN(EmptySlot slot, Acquire(window, times));
    SpanScope span(times.track, "read", window.nbytes, IndexOf(window));
    Stopwatch watch;
    const std::span<std::byte> into = slot.bytes().first(window.nbytes);
    RETURN_IF_ERROR(direct_.reader->Read(into, window.file_offset).WithStage("file"));
    times.read += watch.Lap();
    span.End();
    filled_.Push({.slot = std::move(slot), .window = &window});
  }
  return Status::Ok();
}

Status Readers::ReadPastHost(Times& times) {
  RETURN_IF_ERROR(gpu_.MakeCurrent().WithStage("device"));
  while (const std::optional<uint32_t> index = Take(direct_, next_direct_)) {
    const Window& window = plan_.windows[*index];
    SpanScope span(times.track, "read", 0, IndexOf(window));
    Stopwatch watch;
    for (const Segment& segment : SegmentsOf(plan_, window)) {
      span.AddBytes(segment.nbytes);
      RETURN_IF_ERROR(gds_->Read(window.file_offset + segment.slot_offset, DestinationOf(segment)).WithStage("file"));
      done_bytes_.fetch_add(segment.nbytes);
    }
    times.read += watch.Lap();
  }
  return Status::Ok();
}

DeviceRange Readers::DestinationOf(const Segment& segment) const {
  return {.address = ranges_[segment.extent].address + segment.extent_offset, .nbytes = segment.nbytes};
}

Status Readers::SendWindows(Lane& lane, Times& times) {
  while (std::optional<FilledSlot> filled = NextFilled(times)) {
    RETURN_IF_ERROR(VerifyWindow(*filled->window, filled->slot, times));
    RETURN_IF_ERROR(Send(*filled->window, std::move(filled->slot), lane, times));
  }
  return Status::Ok();
}

// Waits for the oldest copy when every slot is out.
Result<EmptySlot> Readers::Acquire(const Window& window, const Times& times) {
  const SpanScope span(times.track, "wait for a slot", 0, IndexOf(window));
  Result<EmptySlot> slot = ring_->Acquire();
  if (!slot.ok()) return std::move(slot).status().WithStage("device");
  return slot;
}

std::optional<FilledSlot> Readers::NextFilled(const Times& times) {
  const SpanScope span(times.track, "wait for a read");
  return filled_.Pop();
}

Status Readers::VerifyWindow(const Window& window, const EmptySlot& slot, Times& times) {
  SpanScope span(times.track, "digest", 0, IndexOf(window));
  Stopwatch watch;
  for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
    const Segment& segment = plan_.segments[i];
    span.AddBytes(segment.nbytes);
    RETURN_IF_ERROR(verifier_.Check(i, 0, slot.bytes().subspan(segment.slot_offset, segment.nbytes)));
  }
  times.digest += watch.Lap();
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
        const SpanScope span(times.track, "read", nbytes, IndexOf(window));
        RETURN_IF_ERROR(buffered_.reader->Read(into, window.file_offset + filled).WithStage("file"));
        filled += nbytes;
        times.read += watch.Lap();
      }
      const SpanScope span(times.track, "digest", take, IndexOf(window));
      RETURN_IF_ERROR(verifier_.Check(i, done, slot.bytes().subspan(segment.slot_offset + done, take)));
      times.digest += watch.Lap();
      done += take;
    }
  }
  return Status::Ok();
}

Status Readers::Send(const Window& window, EmptySlot slot, Lane& lane, const Times& times) {
  std::vector<CopyIn> copies;
  copies.reserve(window.segments);
  uint64_t nbytes = 0;
  for (const Segment& segment : SegmentsOf(plan_, window)) {
    copies.push_back({.to = DestinationOf(segment), .from = slot.bytes().data() + segment.slot_offset});
    nbytes += segment.nbytes;
  }
  const SpanScope span(times.track, "send", nbytes, IndexOf(window));
  const auto submit = [&]() -> Status {
    RETURN_IF_ERROR(lane.Begin(slot.mark()));
    RETURN_IF_ERROR(lane.CopyToDevice(copies));
    return lane.Record(slot.mark());
  };
  if (Status status = submit().WithStage("device"); !status.ok()) {
    // Some of its copies may be on their way with no mark behind them, so the slot goes back when the lane is empty.
    static_cast<void>(lane.Drain());
    return status;
  }
  std::move(slot).Sent();
  done_bytes_.fetch_add(nbytes);
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
