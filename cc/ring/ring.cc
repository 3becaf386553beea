#include "cc/ring/ring.h"

#include <chrono>
#include <utility>

#include "cc/base/check.h"

namespace coldsnap {
namespace {

constexpr int kTimedSlots = 8;

}  // namespace

EmptySlot::EmptySlot(EmptySlot&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)), index_(other.index_) {}

EmptySlot::~EmptySlot() {
  if (ring_ != nullptr) ring_->GiveBack(index_, false);
}

std::span<std::byte> EmptySlot::bytes() const {
  return ring_->memory_->bytes().subspan(index_ * ring_->slot_bytes_, ring_->slot_bytes_);
}

Mark& EmptySlot::mark() const { return *ring_->marks_[index_]; }

void EmptySlot::Sent() && { std::exchange(ring_, nullptr)->GiveBack(index_, true); }

Result<std::unique_ptr<Ring>> Ring::Create(Gpu& gpu, int slots, uint64_t slot_bytes) {
  COLDSNAP_CHECK(slots >= 1 && slot_bytes % 4096 == 0);
  Status first_error;
  for (;; slots /= 2) {
    Result<std::unique_ptr<PinnedMemory>> memory = gpu.Pin(static_cast<uint64_t>(slots) * slot_bytes);
    if (!memory.ok()) {
      if (first_error.ok()) first_error = memory.status();
      if (slots == 1) return std::move(first_error).WithStage("ring");
      continue;
    }
    std::vector<std::unique_ptr<Mark>> marks;
    for (int i = 0; i < slots; ++i) {
      ASSIGN_OR_RETURN(std::unique_ptr<Mark> mark, gpu.NewMark(i % kTimedSlots == 0));
      marks.push_back(std::move(mark));
    }
    std::unique_ptr<Ring> ring(new Ring(*std::move(memory), std::move(marks), slot_bytes));
    ring->shrunk_because_ = first_error;
    return ring;
  }
}

Ring::Ring(std::unique_ptr<PinnedMemory> memory, std::vector<std::unique_ptr<Mark>> marks, uint64_t slot_bytes)
    : memory_(std::move(memory)),
      marks_(std::move(marks)),
      slot_bytes_(slot_bytes),
      used_(0),
      in_flight_(marks_.size(), false) {
  Use(slots());
}

Ring::~Ring() {
  COLDSNAP_CHECK(free_.size() == used_);  // a slot in somebody's hands would outlive its memory
  static_cast<void>(Drain());
}

void Ring::Use(int slots) {
  COLDSNAP_CHECK(slots >= 1 && slots <= this->slots());
  const std::lock_guard lock(mutex_);
  COLDSNAP_CHECK(free_.size() == used_);
  used_ = static_cast<size_t>(slots);
  free_.clear();
  for (size_t i = 0; i < used_; ++i) free_.push_back(i);
}

Result<EmptySlot> Ring::Acquire() {
  size_t index = 0;
  {
    std::unique_lock lock(mutex_);
    // Waits in rounds: wait() without a time is a GLIBCXX_3.4.30 symbol, which Ubuntu 22.04's older images lack.
    while (!given_back_.wait_for(lock, std::chrono::seconds(1), [this] { return !free_.empty(); })) {
    }
    index = free_.front();
    free_.pop_front();
  }
  EmptySlot slot(this, index);  // from here on a failure gives it back
  RETURN_IF_ERROR(WaitFor(index));
  return slot;
}

Status Ring::WaitFor(size_t index) {
  RETURN_IF_ERROR(marks_[index]->Wait());
  const double busy_s = marks_[index]->BusySeconds();
  const std::lock_guard lock(mutex_);
  if (!in_flight_[index]) return Status::Ok();
  in_flight_[index] = false;
  ++copies_.all;
  if (index % kTimedSlots != 0) return Status::Ok();
  ++copies_.timed;
  copies_.timed_s += busy_s;
  return Status::Ok();
}

Status Ring::Drain() {
  Status first_error;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (Status status = WaitFor(i); !status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

void Ring::GiveBack(size_t index, bool sent) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(index);
    if (sent) in_flight_[index] = true;
  }
  given_back_.notify_one();
}

double Ring::TakeCopySeconds() {
  const std::lock_guard lock(mutex_);
  const Copies copies = std::exchange(copies_, {});
  if (copies.timed == 0) return 0;
  return copies.timed_s * static_cast<double>(copies.all) / static_cast<double>(copies.timed);
}

}  // namespace coldsnap
