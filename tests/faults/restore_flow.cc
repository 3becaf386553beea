// A restore of a small artifact into one allocation, with bytes between the destinations that nobody may touch.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/testing/pattern.h"
#include "cc/testing/test_artifact.h"
#include "tests/faults/flows.h"

namespace coldsnap {
namespace {

constexpr std::byte kBefore{0xEE};
constexpr std::byte kPoison{0xFF};
constexpr uint64_t kGap = 256;

bool AllAre(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
}

class OpenFlow final : public Flow {
 public:
  OpenFlow() : Flow(FlowKind::kOpen, "open") {}
  Status Run() override {
    opened_.reset();
    Result<OpenArtifact> artifact = OpenArtifact::Open(files_.path(), std::nullopt);
    if (!artifact.ok()) return std::move(artifact).status();
    const uint64_t nbytes = artifact->payload_bytes();
    opened_ = nbytes;
    return Status::Ok();
  }
  std::string Wrong(const Status& status, const CallCounts& /*calls*/) override {
    if (status.ok() && opened_ != kLeafBytes + 100) return "it is open and has other bytes than it should";
    return "";
  }
  std::string Doing() const override { return "open artifact "; }

 private:
  TestArtifact files_{{kLeafBytes, 100}};
  std::optional<uint64_t> opened_;
};

class RestoreFlow final : public Flow {
 public:
  RestoreFlow(Gpu& device, const RestoreSetting& setting)
      : Flow(FlowKind::kRestore, StrCat("restore ", setting.name)),
        device_(device),
        setting_(setting),
        artifact_(files_.Open()) {
    uint64_t end = kGap;
    for (const TensorRecord& tensor : artifact_.manifest().tensors) {
      const Extent& extent = artifact_.manifest().extents[*tensor.extent];
      starts_.push_back(end);
      targets_.push_back({.extent = *tensor.extent, .range = {.nbytes = extent.nbytes}});
      seeds_.push_back(std::stoull(tensor.name.substr(1)) + 1);
      end = AlignUp(end + extent.nbytes + kGap, kGap);
    }
    arena_bytes_ = end;
    pinned_ = *device_.Pin(arena_bytes_);
    memory_ = *device_.Allocate(arena_bytes_);
    mark_ = *device_.NewMark(true);
    lane_ = *device_.OpenLane();
    for (size_t i = 0; i < targets_.size(); ++i) targets_[i].range.address = memory_->address() + starts_[i];
    if (device_.Name() == "host") return;  // host memory has no streams
    COLDSNAP_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    streams_.push_back(reinterpret_cast<uintptr_t>(stream_));
  }
  ~RestoreFlow() override {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }

  void Prepare() override {
    std::fill(pinned_->bytes().begin(), pinned_->bytes().end(), kBefore);
    COLDSNAP_CHECK(lane_->Begin(*mark_).ok() && lane_->CopyToDevice(Arena(), pinned_->bytes().data()).ok());
    COLDSNAP_CHECK(lane_->Record(*mark_).ok() && mark_->Wait().ok());
    static_cast<void>(mark_->BusySeconds());  // its answer is due once for each record
    if (!setting_.cold) return;
    COLDSNAP_CHECK(::posix_fadvise(artifact_.blob_fd(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  }

  Status Run() override {
    const Result<HydrateReport> report = Hydrate(artifact_, targets_, device_,
                                                 {.backend = setting_.backend,
                                                  .verify = setting_.verify,
                                                  .place = setting_.place,
                                                  .chunk_bytes = kLeafBytes,
                                                  .queue_depth = 2,
                                                  .read_threads = setting_.read_threads,
                                                  .streams = streams_});
    if (report.ok()) read_past_the_cache_ = report->By(Route::kDirect).nbytes == report->payload_bytes;
    return report.status();
  }
  std::string WhyNot() override {
    Prepare();
    const Status status = Run();
    if (setting_.backend == Backend::kDirect && status.code() == Code::kRouteUnavailable) return status.message();
    if (setting_.cold && !read_past_the_cache_) return "the blob stays in the page cache, or can't be read past it";
    return "";
  }

  // Everything that was asked for and nothing else, or poison and nothing else, or nothing at all. The destinations
  // become the restore's right before the first read of data, which only the two of a trial precede.
  std::string Wrong(const Status& status, const CallCounts& calls) override {
    const std::vector<std::byte> found = ReadArena();
    const uint64_t trial = setting_.backend == Backend::kDirect || setting_.cold ? 2 : 0;
    const bool begun = calls.Of(FaultPoint::kPread) > trial;
    // A thread that can't select its device fails between the two.
    const bool may_have_begun = calls.Of(FaultPoint::kStartThread) > 0;
    uint64_t end = 0;
    for (size_t i = 0; i < targets_.size(); ++i) {
      const uint64_t nbytes = targets_[i].range.nbytes;
      if (!AllAre(std::span(found).subspan(end, starts_[i] - end), kBefore))
        return "bytes between destinations changed";
      const std::span<const std::byte> bytes = std::span(found).subspan(starts_[i], nbytes);
      end = starts_[i] + nbytes;
      if (status.ok()) {
        const std::vector<std::byte> expected = PatternBytes(nbytes, seeds_[i]);
        if (!std::equal(bytes.begin(), bytes.end(), expected.begin()))
          return StrCat("destination ", i, " has other bytes");
      } else if (!begun && may_have_begun && AllAre(bytes, kPoison)) {
        continue;
      } else if (status.code() != Code::kDeviceLost && !AllAre(bytes, begun ? kPoison : kBefore)) {
        return StrCat("destination ", i, begun ? " is not wholly 0xFF" : " was touched before the restore began");
      }
    }
    return AllAre(std::span(found).subspan(end), kBefore) ? "" : "bytes behind the destinations changed";
  }
  std::string Doing() const override { return StrCat("hydrate ", targets_.size(), " extents of "); }
  std::optional<std::pair<FaultPoint, Fault>> Base() const override { return setting_.base; }
  Code BaseCode() const override { return setting_.base_code; }

 private:
  DeviceRange Arena() const { return {.address = memory_->address(), .nbytes = arena_bytes_}; }
  std::vector<std::byte> ReadArena() {
    COLDSNAP_CHECK(lane_->Begin(*mark_).ok() && lane_->CopyToHost(pinned_->bytes().data(), Arena()).ok());
    COLDSNAP_CHECK(lane_->Record(*mark_).ok() && mark_->Wait().ok());
    static_cast<void>(mark_->BusySeconds());
    const std::span<const std::byte> bytes = pinned_->bytes().first(arena_bytes_);
    return {bytes.begin(), bytes.end()};
  }

  Gpu& device_;
  RestoreSetting setting_;
  TestArtifact files_{{100, 3 * kLeafBytes + 7, kLeafBytes, 700, 1, 512, 2 * kLeafBytes - 1}};
  OpenArtifact artifact_;
  bool read_past_the_cache_ = false;  // the last run that succeeded
  std::vector<ExtentTarget> targets_;
  std::vector<uint64_t> starts_;  // in the arena, by target
  std::vector<uint64_t> seeds_;
  uint64_t arena_bytes_ = 0;
  cudaStream_t stream_ = nullptr;  // the caller's, as an engine has one
  std::vector<uintptr_t> streams_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<Mark> mark_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace

std::unique_ptr<Flow> MakeOpenFlow() { return std::make_unique<OpenFlow>(); }
std::unique_ptr<Flow> MakeRestoreFlow(Gpu& device, const RestoreSetting& setting) {
  return std::make_unique<RestoreFlow>(device, setting);
}

}  // namespace coldsnap
