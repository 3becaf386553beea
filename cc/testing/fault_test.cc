// The mechanism itself: a fault hits the call that it names, counts, and goes with its scope.
#include "cc/testing/fault.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/units.h"
#include "cc/device/cuda_gpu.h"
#include "cc/sys/clock.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"
#include "cc/testing/fake_cuda.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {
namespace {

class FaultTest : public testing::Test {
 protected:
  Status Read(size_t nbytes = 10) {
    into_.assign(nbytes, '\0');
    return ReadExact(fd_.get(), std::as_writable_bytes(std::span(into_)), 0, "f");
  }
  TempDir temp_;
  std::string text_ = temp_.Write("f", "0123456789");
  UniqueFd dir_ = *OpenDirectory(temp_.path());
  UniqueFd fd_ = *OpenFileAt(dir_.get(), "f");
  std::string into_;
};

TEST_F(FaultTest, HitsTheCallsItNamesAndNoOther) {
  const ScopedFault fault(FaultPoint::kPread, {.error = EIO, .on_call = 2, .times = 2});
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(Read().native(), EIO);
  EXPECT_EQ(Read().native(), EIO);
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(fault.fired(), 2U);
}

TEST_F(FaultTest, GoesWithItsScope) {
  const CallCounts counts;
  {
    const ScopedFault fault(FaultPoint::kPread, {.times = 0});
    EXPECT_FALSE(Read().ok());
    EXPECT_FALSE(Read().ok());
  }
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(counts.Of(FaultPoint::kPread), 3U);
  EXPECT_EQ(counts.Of(FaultPoint::kPwrite), 0U);
}

TEST_F(FaultTest, ShortTransfersMoveWhatTheySay) {
  const CallCounts counts;
  for (const auto& [kind, calls] : {std::pair{FaultKind::kOneByte, 2U}, {FaultKind::kHalf, 2U}}) {
    const CallCounts each;
    const ScopedFault fault(FaultPoint::kPread, {.kind = kind});
    ASSERT_TRUE(Read().ok());
    EXPECT_EQ(into_, "0123456789");
    EXPECT_EQ(each.Of(FaultPoint::kPread), calls);
  }
  const ScopedFault fault(FaultPoint::kPread, {.kind = FaultKind::kNothing});
  EXPECT_EQ(Read().code(), Code::kDataLoss);
}

TEST_F(FaultTest, AReadThatLiesGivesOneBitWrong) {
  const ScopedFault fault(FaultPoint::kPread, {.kind = FaultKind::kFlipped});
  ASSERT_TRUE(Read().ok());
  EXPECT_EQ(fault.fired(), 1U);
  EXPECT_EQ(into_, "1123456789");
}

TEST_F(FaultTest, SlowCallsAreMadeAllTheSame) {
  const ScopedFault fault(FaultPoint::kPread, {.kind = FaultKind::kSlow, .slow_ms = 30});
  const Stopwatch watch;
  EXPECT_TRUE(Read().ok());
  EXPECT_GE(watch.Seconds(), 0.03);
  EXPECT_EQ(fault.fired(), 1U);
}

TEST_F(FaultTest, AnErrorAfterTheCallLeavesItDone) {
  const ScopedFault fault(FaultPoint::kClose, {.kind = FaultKind::kErrorAfter, .error = EIO});
  const int number = fd_.get();
  EXPECT_EQ(std::move(fd_).Close().native(), EIO);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1) << "the descriptor is closed";
}

TEST_F(FaultTest, TheNewestOfSeveralWinsAndBothCount) {
  const ScopedFault older(FaultPoint::kPread, {.error = EIO});
  const ScopedFault newer(FaultPoint::kPread, {.error = EINVAL});
  EXPECT_EQ(Read().native(), EINVAL);
  EXPECT_EQ(older.fired() + newer.fired(), 2U);
}

TEST_F(FaultTest, CountsAcrossThreads) {
  constexpr uint64_t kTimes = 100;
  const ScopedFault fault(FaultPoint::kPread, {.on_call = 51, .times = kTimes});
  std::atomic<uint64_t> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::byte byte{};
      for (int i = 0; i < 100; ++i) failed += ReadExact(fd_.get(), {&byte, 1}, 0, "f").ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), kTimes);
  EXPECT_EQ(fault.fired(), kTimes);
}

TEST_F(FaultTest, ReachesEveryCallThatTheCoreMakes) {
  {
    const ScopedFault fault(FaultPoint::kOpenat, {.error = EMFILE});
    EXPECT_EQ(OpenFileAt(dir_.get(), "f").status().native(), EMFILE);
  }
  {
    const ScopedFault fault(FaultPoint::kMmap, {.error = ENOMEM});
    EXPECT_EQ(MapTouched(1).status().code(), Code::kOutOfMemory);
  }
  {
    const ScopedFault fault(FaultPoint::kStartThread, {.error = EAGAIN});
    EXPECT_THROW(std::thread([] {}), std::system_error);
  }
}

TEST_F(FaultTest, MappedMemoryIsCounted) {
  const int64_t before = MappedBytes();
  {
    const Mapping mapping = *MapTouched(5 * kMiB);
    EXPECT_EQ(MappedBytes() - before, static_cast<int64_t>(6 * kMiB));
  }
  EXPECT_EQ(MappedBytes(), before);
}

class FakeCudaTest : public testing::Test {
 protected:
  FakeCuda fake_;
  std::unique_ptr<Gpu> gpu_ = *OpenCudaGpu(1);
  std::unique_ptr<PinnedMemory> pinned_ = *gpu_->Pin(100);
  std::unique_ptr<DeviceMemory> memory_ = *gpu_->Allocate(100);
  std::unique_ptr<Mark> mark_ = *gpu_->NewMark(true);
  std::unique_ptr<Lane> lane_ = *gpu_->OpenLane();
  DeviceRange range_{.address = memory_->address(), .nbytes = 100};
  std::byte* bytes_ = reinterpret_cast<std::byte*>(range_.address);  // NOLINT(performance-no-int-to-ptr)
};

TEST_F(FakeCudaTest, CopiesAsLateAsAllowed) {
  pinned_->bytes()[7] = std::byte{1};
  ASSERT_TRUE(lane_->Begin(*mark_).ok());
  ASSERT_TRUE(lane_->CopyToDevice(range_, pinned_->bytes().data()).ok());
  ASSERT_TRUE(lane_->Record(*mark_).ok());
  EXPECT_EQ(fake_.PendingCopies(), 1U);
  EXPECT_EQ(bytes_[7], std::byte{0});
  pinned_->bytes()[7] = std::byte{2};  // too early: the device gets it
  ASSERT_TRUE(mark_->Wait().ok());
  EXPECT_EQ(bytes_[7], std::byte{2});
  EXPECT_GT(mark_->BusySeconds(), 0.0);
  EXPECT_TRUE(fake_.TakeViolations().empty());
}

TEST_F(FakeCudaTest, ReportsMemoryThatGoesUnderACopy) {
  ASSERT_TRUE(lane_->CopyToDevice(range_, pinned_->bytes().data()).ok());
  ASSERT_TRUE(gpu_->Poison({&range_, 1}).ok());
  EXPECT_EQ(fake_.TakeViolations().size(), 1U) << "filled while a copy to it was under way";
  memory_.reset();
  EXPECT_EQ(fake_.TakeViolations().size(), 1U) << "freed while a copy to it was under way";
  memory_ = *gpu_->Allocate(100);
  lane_.reset();
  EXPECT_EQ(fake_.TakeViolations().size(), 1U) << "its stream destroyed";
}

TEST_F(FakeCudaTest, KnowsItsOwnMemoryAndKeepsTheCallersDevice) {
  const Result<DeviceRange> allocation = gpu_->AllocationOf(range_.address + 99);
  ASSERT_TRUE(allocation.ok()) << allocation.status().message();
  EXPECT_EQ(allocation->address, range_.address);
  EXPECT_EQ(allocation->nbytes, 100U);
  std::byte host{};
  EXPECT_EQ(gpu_->AllocationOf(reinterpret_cast<uint64_t>(&host)).status().code(), Code::kLayoutMismatch);
  EXPECT_EQ(fake_.CurrentDevice(), 0);
  EXPECT_EQ(fake_.LiveObjects(), 7U);  // registration, allocation, two events, three streams
}

TEST_F(FakeCudaTest, ErrorsAreTheRuntimesAndAreNotLeftBehind) {
  const ScopedFault fault(FaultPoint::kCudaMemsetAsync, {.error = cudaErrorIllegalAddress});
  const Status status = gpu_->Poison({&range_, 1});
  EXPECT_EQ(status.code(), Code::kDeviceLost);
  EXPECT_EQ(status.native(), cudaErrorIllegalAddress);
  EXPECT_EQ(fault.fired(), 1U);
  EXPECT_EQ(fake_.LastError(), 0);
}

}  // namespace
}  // namespace coldsnap
