// The device that a test runs on, by COLDSNAP_TEST_DEVICE ("host", the default, or "cuda:N"), and its memory.
//
// The host stands in for a device in its strictest form: copies happen as late as their contract allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/types.h"
#include "cc/device/gpu.h"

namespace coldsnap {

class TestDevice {
 public:
  TestDevice();

  Gpu& gpu() { return *gpu_; }
  bool IsCuda() const { return cuda_; }

  // Memory that is filled with 0xEE and lives as long as this object. Nothing is allocated for no bytes.
  DeviceRange Allocate(uint64_t nbytes);
  std::vector<std::byte> Read(const DeviceRange& range);
  // How many bytes differ from PatternBytes(range.nbytes, seed); on a CUDA device its own kernel counts.
  uint64_t Differences(const DeviceRange& range, uint64_t seed);
  // Whether every byte is `value`.
  bool AllBytesAre(const DeviceRange& range, std::byte value);

 private:
  std::unique_ptr<Gpu> gpu_;
  bool cuda_ = false;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

}  // namespace coldsnap
