// A slot whose copies could not be recorded: some of them may be on their way, and no mark says when they are done.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/device/host_gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/test_artifact.h"

namespace coldsnap {
namespace {

// Its third record fails, and what was submitted before that is still being copied for a while: whoever drains the lane
// waits for it, and it is compared then with what it was when it was submitted.
class FailingRecordGpu final : public InterposedGpu {
 public:
  explicit FailingRecordGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  int changed_under_the_copy() const { return changed_; }
  bool failed() const { return records_ > 2; }

  Result<std::unique_ptr<Lane>> OpenLane() override {
    ASSIGN_OR_RETURN(std::unique_ptr<Lane> lane, InterposedGpu::OpenLane());
    return std::unique_ptr<Lane>(std::make_unique<SlowLane>(*this, std::move(lane)));
  }

 private:
  struct Copy {
    const std::byte* from = nullptr;
    std::vector<std::byte> submitted;
  };
  class SlowLane final : public Lane {
   public:
    SlowLane(FailingRecordGpu& gpu, std::unique_ptr<Lane> inner) : gpu_(gpu), inner_(std::move(inner)) {}
    Status Begin(Mark& mark) override { return inner_->Begin(mark); }
    Status CopyToDevice(std::span<const CopyIn> copies) override {
      for (const auto& [to, from] : copies) in_flight_.push_back({.from = from, .submitted = {from, from + to.nbytes}});
      return inner_->CopyToDevice(copies);
    }
    Status CopyToHost(std::byte* to, const DeviceRange& from) override { return inner_->CopyToHost(to, from); }
    Status Record(Mark& mark) override {
      RETURN_IF_ERROR(inner_->Record(mark));
      if (gpu_.records_++ == 2) return Status(Code::kCuda, "record an event: injected");
      in_flight_.clear();  // the host's copies are done by now
      return Status::Ok();
    }
    Status HashLeaves(std::span<const DeviceRange> ranges, Verify verify, LeafDigest* out, Mark& mark) override {
      return inner_->HashLeaves(ranges, verify, out, mark);
    }
    Status Drain() override {
      if (!in_flight_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (const Copy& copy : std::exchange(in_flight_, {})) {
        if (!std::equal(copy.submitted.begin(), copy.submitted.end(), copy.from)) ++gpu_.changed_;
      }
      return inner_->Drain();
    }

   private:
    FailingRecordGpu& gpu_;
    std::unique_ptr<Lane> inner_;
    std::vector<Copy> in_flight_;
  };

  std::atomic<int> records_ = 0;
  std::atomic<int> changed_ = 0;
};

class FailedSendTest : public testing::TestWithParam<Backend> {};

TEST_P(FailedSendTest, ItsSlotIsNotFilledAgainWhileItsCopiesAreOnTheirWay) {
  const TestArtifact files({4 * kMiB});
  const OpenArtifact artifact = files.Open();
  TestDevice device;
  const auto destinations = files.Allocate(artifact, device);
  const std::unique_ptr<Gpu> host = OpenHostGpu();
  FailingRecordGpu gpu(*host);
  // Other threads wait for one of the two slots.
  const HydrateOptions options = {
      .backend = GetParam(), .chunk_bytes = kLeafBytes, .queue_depth = 2, .read_threads = 4};
  const Status status = Hydrate(artifact, TargetsOf(destinations), gpu, options).status();
  EXPECT_TRUE(gpu.failed());
  EXPECT_EQ(status.code(), Code::kCuda) << status.message();
  EXPECT_EQ(gpu.changed_under_the_copy(), 0);
  for (const auto& each : destinations) EXPECT_TRUE(device.AllBytesAre(each.target.range, std::byte{0xFF}));
}

INSTANTIATE_TEST_SUITE_P(Routes, FailedSendTest, testing::Values(Backend::kBuffered, Backend::kDirect),
                         [](const auto& info) { return info.param == Backend::kDirect ? "direct" : "buffered"; });

}  // namespace
}  // namespace coldsnap
