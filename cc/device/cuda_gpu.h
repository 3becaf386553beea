// CudaGpu: a CUDA device by the static runtime. The process may have no driver at all; then only OpenCudaGpu fails.
#pragma once

#include <string>

#include "cc/device/gpu.h"

namespace coldsnap {

// kRouteUnavailable, with the driver's own reason, when there is no such device.
Result<std::unique_ptr<Gpu>> OpenCudaGpu(int ordinal);

// Of the static runtime that we are linked with: "13.0".
std::string CudaRuntimeVersion();

// How many devices there are; when none, `why` says why. Creates no context.
struct CudaDevices {
  int count = 0;
  std::string why;
};
CudaDevices CountCudaDevices();

struct CudaDeviceInfo {
  std::string name;  // as the driver calls the card
  uint64_t free_bytes = 0;
};
// Creates the device's context if there is none yet.
Result<CudaDeviceInfo> DescribeCudaDevice(int ordinal);

}  // namespace coldsnap
