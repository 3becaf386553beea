#include "cc/capture/pass.h"

#include <utility>

namespace coldsnap {

Status Pass::Run(int threads, const Work& work, const Tick& tick) {
  crew_.Run(
      threads, [&](int member) { Fail(RunMember(member, work)); },
      [&] {
        if (!stop_.load()) Fail(tick(done_bytes_.load()));
      });
  if (first_failure_.ok()) Fail(tick(done_bytes_.load()));
  return first_failure_;
}

Status Pass::RunMember(int member, const Work& work) {
  while (!stop_.load()) {
    const size_t index = next_.fetch_add(1);
    if (index >= plan_.windows.size()) break;
    const BlobWindow& window = plan_.windows[index];
    Result<EmptySlot> slot = ring_.Acquire();
    if (!slot.ok()) return std::move(slot).status().WithStage("device");
    RETURN_IF_ERROR(work(member, window, *slot));
    for (const SourceSegment& segment : plan_.SegmentsOf(window)) done_bytes_.fetch_add(segment.nbytes);
  }
  return Status::Ok();
}

void Pass::Fail(Status status) {
  if (status.ok()) return;
  stop_.store(true);
  const std::lock_guard lock(mutex_);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

}  // namespace coldsnap
