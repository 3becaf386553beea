#include "cc/device/host_gpu.h"

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cc/sys/clock.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t nbytes = 0;
};

std::byte* HostPointer(const DeviceRange& range) {
  return reinterpret_cast<std::byte*>(range.address);  // NOLINT(performance-no-int-to-ptr): the caller's address
}

// Holds the copies that its lane has put off.
class HostMark final : public Mark {
 public:
  void Add(const Copy& copy, CopyTime when) {
    if (when == CopyTime::kLatest) {
      late_.push_back(copy);
    } else {
      Do(copy);
    }
  }
  Status Wait() override {
    for (const Copy& copy : std::exchange(late_, {})) Do(copy);
    return Status::Ok();
  }
  double BusySeconds() override { return std::exchange(busy_s_, 0); }

 private:
  void Do(const Copy& copy) {
    const Stopwatch watch;
    std::memcpy(copy.to, copy.from, copy.nbytes);
    busy_s_ += watch.Seconds();
  }

  std::vector<Copy> late_;
  double busy_s_ = 0;
};

class HostLane final : public Lane {
 public:
  explicit HostLane(CopyTime when) : when_(when) {}

  Status Begin(Mark& mark) override {
    open_ = static_cast<HostMark*>(&mark);
    return Status::Ok();
  }
  Status CopyToDevice(std::span<const CopyIn> copies) override {
    for (const auto& [to, from] : copies) open_->Add({.to = HostPointer(to), .from = from, .nbytes = to.nbytes}, when_);
    return Status::Ok();
  }
  Status CopyToHost(std::byte* to, const DeviceRange& from) override {
    open_->Add({.to = to, .from = HostPointer(from), .nbytes = from.nbytes}, when_);
    return Status::Ok();
  }
  Status Record(Mark& mark) override {
    COLDSNAP_CHECK(&mark == open_);
    open_ = nullptr;
    return Status::Ok();
  }
  Status Drain() override { return Status::Ok(); }  // marks do the work, and whoever has one waits for it

 private:
  CopyTime when_;
  HostMark* open_ = nullptr;
};

class HostPinned final : public PinnedMemory {
 public:
  explicit HostPinned(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::span<std::byte> bytes() override { return BytesOf(mapping_); }

 private:
  Mapping mapping_;
};

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(Mapping mapping) : mapping_(std::move(mapping)) {}
  uint64_t address() const override { return reinterpret_cast<uint64_t>(mapping_.get().address); }

 private:
  Mapping mapping_;
};

class HostGpu final : public Gpu {
 public:
  explicit HostGpu(CopyTime when) : when_(when) {}

  std::string Name() const override { return "host"; }
  Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) override {
    ASSIGN_OR_RETURN(Mapping mapping, MapTouched(nbytes));
    return std::unique_ptr<PinnedMemory>(std::make_unique<HostPinned>(std::move(mapping)));
  }
  Result<std::unique_ptr<DeviceMemory>> Allocate(uint64_t nbytes) override {
    ASSIGN_OR_RETURN(Mapping mapping, MapTouched(nbytes));
    return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>(std::move(mapping)));
  }
  Result<std::unique_ptr<Lane>> OpenLane() override { return std::unique_ptr<Lane>(std::make_unique<HostLane>(when_)); }
  Result<std::unique_ptr<Mark>> NewMark(bool /*timed*/) override {
    return std::unique_ptr<Mark>(std::make_unique<HostMark>());
  }
  // The host can't tell one kind of its memory from another.
  Result<DeviceRange> AllocationOf(uint64_t /*address*/) override {
    return DeviceRange{.address = 0, .nbytes = std::numeric_limits<uint64_t>::max()};
  }
  std::optional<int> NumaNode() const override { return std::nullopt; }
  Status MakeCurrent() override { return Status::Ok(); }
  Status WaitForStreams(std::span<const uintptr_t> streams) override {
    if (streams.empty()) return Status::Ok();
    return Status(Code::kRequestInvalid, StrCat("order ", streams.size(),
                                                " streams before a restore into host memory: "
                                                "host memory has no streams"));
  }
  Status Poison(std::span<const DeviceRange> ranges) override {
    for (const DeviceRange& range : ranges) std::memset(HostPointer(range), 0xFF, range.nbytes);
    return Status::Ok();
  }

 private:
  CopyTime when_;
};

}  // namespace

std::unique_ptr<Gpu> OpenHostGpu(CopyTime when) { return std::make_unique<HostGpu>(when); }

}  // namespace coldsnap
