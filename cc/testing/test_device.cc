#include "cc/testing/test_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cc/base/check.h"
#include "cc/device/host_gpu.h"
#include "cc/testing/fill_compare.h"
#include "cc/testing/pattern.h"

namespace coldsnap {
namespace {

constexpr std::byte kBefore{0xEE};

}  // namespace

TestDevice::TestDevice() {
  const char* const named = std::getenv("COLDSNAP_TEST_DEVICE");
  const std::string name = named == nullptr ? "host" : named;
  cuda_ = name != "host";
  Result<std::unique_ptr<Gpu>> gpu = cuda_ ? OpenGpu(name) : OpenHostGpu(CopyTime::kLatest);
  if (!gpu.ok()) std::fprintf(stderr, "COLDSNAP_TEST_DEVICE=%s: %s\n", name.c_str(), gpu.status().message().c_str());
  COLDSNAP_CHECK(gpu.ok());
  gpu_ = *std::move(gpu);
}

DeviceRange TestDevice::Allocate(uint64_t nbytes) {
  if (nbytes == 0) return {};
  memory_.push_back(*gpu_->Allocate(nbytes));
  const DeviceRange range{.address = memory_.back()->address(), .nbytes = nbytes};
  const std::unique_ptr<PinnedMemory> pinned = *gpu_->Pin(nbytes);
  std::fill(pinned->bytes().begin(), pinned->bytes().end(), kBefore);
  const std::unique_ptr<Lane> lane = *gpu_->OpenLane();
  const std::unique_ptr<Mark> mark = *gpu_->NewMark(true);
  COLDSNAP_CHECK(lane->Begin(*mark).ok() && lane->CopyToDevice(range, pinned->bytes().data()).ok());
  COLDSNAP_CHECK(lane->Record(*mark).ok() && mark->Wait().ok());
  return range;
}

std::vector<std::byte> TestDevice::Read(const DeviceRange& range) {
  std::vector<std::byte> bytes(range.nbytes);
  if (range.nbytes == 0) return bytes;
  const std::unique_ptr<PinnedMemory> pinned = *gpu_->Pin(range.nbytes);
  const std::unique_ptr<Lane> lane = *gpu_->OpenLane();
  const std::unique_ptr<Mark> mark = *gpu_->NewMark(true);
  COLDSNAP_CHECK(lane->Begin(*mark).ok() && lane->CopyToHost(pinned->bytes().data(), range).ok());
  COLDSNAP_CHECK(lane->Record(*mark).ok() && mark->Wait().ok());
  std::memcpy(bytes.data(), pinned->bytes().data(), bytes.size());
  return bytes;
}

uint64_t TestDevice::Differences(const DeviceRange& range, uint64_t seed) {
  if (cuda_) return *CountDifferencesOnDevice(range, seed);
  const std::vector<std::byte> expected = PatternBytes(range.nbytes, seed);
  const std::vector<std::byte> found = Read(range);
  uint64_t differences = 0;
  for (size_t i = 0; i < found.size(); ++i) differences += found[i] != expected[i] ? 1 : 0;
  return differences;
}

bool TestDevice::AllBytesAre(const DeviceRange& range, std::byte value) {
  const std::vector<std::byte> bytes = Read(range);
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
}

}  // namespace coldsnap
