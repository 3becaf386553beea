// A Gpu around another one that calls a function before each copy to the device, to do something in the middle of a
// restore or to fail there, and that knows how much device memory was taken and not given back.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/device/gpu.h"

namespace coldsnap {

class InterposedGpu : public Gpu {
 public:
  // `before_copy` gets the number of copies so far, from any thread; a failure of it is the copy's.
  InterposedGpu(Gpu& inner, std::function<Status(int)> before_copy)
      : inner_(inner), before_copy_(std::move(before_copy)) {}

  // After a copy to the host, which may still be on its way; from any thread.
  virtual void CopiedToHost(std::span<std::byte> /*bytes*/) {}

  int copies() const { return copies_; }
  uint64_t allocated_bytes() const { return *allocated_bytes_; }

  std::string Name() const override { return inner_.Name(); }
  Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) override { return inner_.Pin(nbytes); }
  Result<std::unique_ptr<DeviceMemory>> Allocate(uint64_t nbytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, inner_.Allocate(nbytes));
    return std::unique_ptr<DeviceMemory>(std::make_unique<CountedMemory>(std::move(memory), nbytes, allocated_bytes_));
  }
  Result<std::unique_ptr<Mark>> NewMark(bool timed) override { return inner_.NewMark(timed); }
  Result<DeviceRange> AllocationOf(uint64_t address) override { return inner_.AllocationOf(address); }
  std::optional<int> NumaNode() const override { return inner_.NumaNode(); }
  Status CanHashLeaves() override { return inner_.CanHashLeaves(); }
  bool IsHost() const override { return inner_.IsHost(); }
  Status MakeCurrent() override { return inner_.MakeCurrent(); }
  Status WaitForStreams(std::span<const uintptr_t> streams) override { return inner_.WaitForStreams(streams); }
  Status Poison(std::span<const DeviceRange> ranges) override { return inner_.Poison(ranges); }
  Result<std::unique_ptr<Lane>> OpenLane() override {
    ASSIGN_OR_RETURN(std::unique_ptr<Lane> lane, inner_.OpenLane());
    return std::unique_ptr<Lane>(std::make_unique<InterposedLane>(*this, std::move(lane)));
  }

 private:
  using Count = std::shared_ptr<std::atomic<uint64_t>>;  // what leaks may outlive the Gpu
  class CountedMemory final : public DeviceMemory {
   public:
    CountedMemory(std::unique_ptr<DeviceMemory> inner, uint64_t nbytes, Count allocated_bytes)
        : inner_(std::move(inner)), nbytes_(nbytes), allocated_bytes_(std::move(allocated_bytes)) {
      *allocated_bytes_ += nbytes_;
    }
    ~CountedMemory() override { *allocated_bytes_ -= nbytes_; }
    uint64_t address() const override { return inner_->address(); }

   private:
    std::unique_ptr<DeviceMemory> inner_;
    uint64_t nbytes_;
    Count allocated_bytes_;
  };

  class InterposedLane final : public Lane {
   public:
    InterposedLane(InterposedGpu& gpu, std::unique_ptr<Lane> inner) : gpu_(gpu), inner_(std::move(inner)) {}
    Status Begin(Mark& mark) override { return inner_->Begin(mark); }
    Status CopyToDevice(std::span<const CopyIn> copies) override {
      for (const CopyIn& copy : copies) {
        RETURN_IF_ERROR(gpu_.before_copy_(gpu_.copies_++));
        RETURN_IF_ERROR(inner_->CopyToDevice({&copy, 1}));
      }
      return Status::Ok();
    }
    Status CopyToHost(std::byte* to, const DeviceRange& from) override {
      RETURN_IF_ERROR(inner_->CopyToHost(to, from));
      gpu_.CopiedToHost({to, from.nbytes});
      return Status::Ok();
    }
    Status Record(Mark& mark) override { return inner_->Record(mark); }
    Status HashLeaves(std::span<const DeviceRange> ranges, Verify verify, LeafDigest* out, Mark& mark) override {
      return inner_->HashLeaves(ranges, verify, out, mark);
    }
    Status Drain() override { return inner_->Drain(); }

   private:
    InterposedGpu& gpu_;
    std::unique_ptr<Lane> inner_;
  };

  Gpu& inner_;
  std::function<Status(int)> before_copy_;
  Count allocated_bytes_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::atomic<int> copies_ = 0;  // reader threads copy side by side
};

}  // namespace coldsnap
