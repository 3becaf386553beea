#include "cc/device/host_gpu.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/sys/clock.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

std::byte* HostPointer(const DeviceRange& range) {
  return reinterpret_cast<std::byte*>(range.address);  // NOLINT(performance-no-int-to-ptr): the caller's address
}

// Holds what its lane has put off. Whoever waits does it, and a lane whose digests come behind it may, too.
class HostMark final : public Mark {
 public:
  using Work = std::function<void()>;

  void Add(Work work, CopyTime when) {
    const std::lock_guard lock(mutex_);
    late_.push_back(std::move(work));
    if (when == CopyTime::kAtOnce) DoAll();
  }
  Status Wait() override {
    const std::lock_guard lock(mutex_);
    DoAll();
    return Status::Ok();
  }
  double BusySeconds() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(busy_s_, 0);
  }

 private:
  void DoAll() {
    const Stopwatch watch;
    for (const Work& work : std::exchange(late_, {})) work();
    busy_s_ += watch.Seconds();
  }

  std::mutex mutex_;
  std::vector<Work> late_;
  double busy_s_ = 0;
};

void HashRange(std::span<const std::byte> bytes, Verify verify, LeafDigest* out) {
  for (; !bytes.empty(); ++out) {
    const auto leaf = bytes.first(std::min<size_t>(kLeafBytes, bytes.size()));
    out->crc32 = Crc32(0, leaf);
    if (verify == Verify::kCrc32Sha256) out->sha256 = Sha256Of(leaf);
    bytes = bytes.subspan(leaf.size());
  }
}

class HostLane final : public Lane {
 public:
  explicit HostLane(CopyTime when) : when_(when) {}

  Status Begin(Mark& mark) override {
    open_ = static_cast<HostMark*>(&mark);
    return Status::Ok();
  }
  Status CopyToDevice(std::span<const CopyIn> copies) override {
    for (const auto& [to, from] : copies) Copy(HostPointer(to), from, to.nbytes);
    return Status::Ok();
  }
  Status CopyToHost(std::byte* to, const DeviceRange& from) override {
    Copy(to, HostPointer(from), from.nbytes);
    return Status::Ok();
  }
  Status Record(Mark& mark) override {
    COLDSNAP_CHECK(&mark == open_);
    open_ = nullptr;
    if (when_ == CopyTime::kAtOnce) return Status::Ok();
    // A mark of its own copies has them with it; one without any is behind all those before it.
    if (std::exchange(copies_, 0) != 0) {
      recorded_.push_back(&static_cast<HostMark&>(mark));
    } else {
      const auto wait = [before = std::exchange(recorded_, {})] {
        for (HostMark* const each : before) static_cast<void>(each->Wait());
      };
      static_cast<HostMark&>(mark).Add(wait, when_);
    }
    return Status::Ok();
  }
  Status HashLeaves(std::span<const DeviceRange> ranges, Verify verify, LeafDigest* out, Mark& mark) override {
    const auto work = [ranges = std::vector(ranges.begin(), ranges.end()), verify, out]() mutable {
      for (const DeviceRange& range : ranges) {
        HashRange({HostPointer(range), range.nbytes}, verify, out);
        out += LeavesOf(range.nbytes);
      }
    };
    static_cast<HostMark&>(mark).Add(work, when_);
    return Status::Ok();
  }
  // Marks do the work, and whoever has one waits for it.
  Status Drain() override {
    recorded_.clear();
    return Status::Ok();
  }

 private:
  void Copy(std::byte* to, const std::byte* from, uint64_t nbytes) {
    ++copies_;
    open_->Add([=] { std::memcpy(to, from, nbytes); }, when_);
  }

  CopyTime when_;
  HostMark* open_ = nullptr;
  int copies_ = 0;                   // that count into it
  std::vector<HostMark*> recorded_;  // with copies, since the last mark without any
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
  Status CanHashLeaves() override { return Status::Ok(); }
  bool IsHost() const override { return true; }
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
