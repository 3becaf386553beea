#include <cstring>
#include <string>

#include "cc/device/cuda_gpu.h"
#include "cc/device/host_gpu.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

DeviceRange RangeOf(std::string& bytes) { return {reinterpret_cast<uint64_t>(bytes.data()), bytes.size()}; }

TEST(HostGpuTest, LateCopiesHappenWhenTheirMarkIsWaitedForAndNotBefore) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu(CopyTime::kLatest);
  const std::unique_ptr<Lane> lane = *gpu->OpenLane();
  const std::unique_ptr<Mark> mark = *gpu->NewMark(true);
  std::string source = "first";
  std::string target(5, '-');
  ASSERT_TRUE(lane->Begin(*mark).ok());
  ASSERT_TRUE(lane->CopyToDevice(RangeOf(target), reinterpret_cast<const std::byte*>(source.data())).ok());
  ASSERT_TRUE(lane->Record(*mark).ok());
  EXPECT_EQ(target, "-----");
  source = "later";  // what a slot that is given out too early would do
  ASSERT_TRUE(mark->Wait().ok());
  EXPECT_EQ(target, "later");
}

TEST(HostGpuTest, CopiesBothWaysAtOnce) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const std::unique_ptr<Lane> lane = *gpu->OpenLane();
  const std::unique_ptr<Mark> mark = *gpu->NewMark(true);
  std::string source = "bytes";
  std::string target(5, '-');
  ASSERT_TRUE(lane->Begin(*mark).ok());
  ASSERT_TRUE(lane->CopyToHost(reinterpret_cast<std::byte*>(target.data()), RangeOf(source)).ok());
  ASSERT_TRUE(lane->Record(*mark).ok());
  EXPECT_EQ(target, "bytes");
}

TEST(HostGpuTest, PoisonsEveryByte) {
  std::string a(3, 'a');
  std::string b(7, 'b');
  const DeviceRange ranges[] = {RangeOf(a), RangeOf(b)};
  ASSERT_TRUE(OpenHostGpu()->Poison(ranges).ok());
  EXPECT_EQ(a, std::string(3, '\xff'));
  EXPECT_EQ(b, std::string(7, '\xff'));
}

TEST(HostGpuTest, HasNoStreams) {
  const uintptr_t streams[] = {1};
  EXPECT_EQ(OpenHostGpu()->WaitForStreams(streams).code(), Code::kRequestInvalid);
  EXPECT_TRUE(OpenHostGpu()->WaitForStreams({}).ok());
}

TEST(OpenGpuTest, RefusesOtherNames) {
  for (const char* name : {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "host "}) {
    EXPECT_EQ(OpenGpu(name).status().code(), Code::kRequestInvalid) << name;
  }
  EXPECT_EQ((*OpenGpu("host"))->Name(), "host");
}

TEST(OpenGpuTest, SaysWhyADeviceIsNotThere) {
  const CudaDevices devices = CountCudaDevices();
  const Status status = OpenGpu("cuda:99").status();
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_NE(status.message().find(std::to_string(devices.count) + " CUDA devices"), std::string::npos);
  EXPECT_EQ(devices.why.empty(), devices.count > 0);
}

}  // namespace
}  // namespace coldsnap
