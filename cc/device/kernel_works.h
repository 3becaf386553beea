// Whether the current device runs a kernel of ours.
#pragma once

#include <cuda_runtime_api.h>

namespace coldsnap {

// The kernel was built for the current device, which reads and writes pinned memory at its host address.
template <typename Kernel>
bool KernelWorks(Kernel kernel) {
  int device = 0;
  int same_address = 0;
  cudaFuncAttributes attributes{};
  const bool works =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, device) == cudaSuccess &&
      same_address != 0 && cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) == cudaSuccess;
  if (!works) static_cast<void>(cudaGetLastError());  // the caller has another way
  return works;
}

}  // namespace coldsnap
