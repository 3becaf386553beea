// What fault_cuda.cc calls in place of the CUDA runtime while a FakeCuda lives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cc/device/hash_leaves.h"
#include "cc/device/scatter.h"

namespace coldsnap::fake_cuda {

bool Active();
// Gives the error back, and keeps it as the thread's last one as the runtime does.
cudaError_t Fail(cudaError_t error);

cudaError_t TakeLastError();
cudaError_t GetDeviceCount(int* count);
cudaError_t GetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t MemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t GetDevice(int* device);
cudaError_t SetDevice(int device);
cudaError_t PointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
// The allocation that holds the address, as the driver's cuMemGetAddressRange.
int GetAddressRange(unsigned long long* base, size_t* nbytes, unsigned long long address);
cudaError_t Malloc(void** address, size_t nbytes);
cudaError_t Free(void* address);
cudaError_t HostRegister(void* address, size_t nbytes);
cudaError_t HostUnregister(void* address);
cudaError_t StreamCreate(cudaStream_t* handle);
cudaError_t StreamDestroy(cudaStream_t handle);
cudaError_t StreamSynchronize(cudaStream_t handle);
cudaError_t EventCreate(cudaEvent_t* handle);
cudaError_t EventDestroy(cudaEvent_t handle);
cudaError_t EventRecord(cudaEvent_t handle, cudaStream_t stream_handle);
cudaError_t EventQuery(cudaEvent_t handle);
cudaError_t EventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t MemcpyAsync(void* to, const void* from, size_t nbytes, cudaStream_t stream);
cudaError_t MemcpyBatchAsync(void* const* to, const void* const* from, const size_t* nbytes, size_t count,
                             cudaStream_t stream);
cudaError_t Scatter(const ScatterTable& table, cudaStream_t stream);
cudaError_t HashLeaves(const HashTable& table, bool sha256, cudaStream_t stream);
cudaError_t MemsetAsync(void* to, int value, size_t nbytes, cudaStream_t stream);

}  // namespace coldsnap::fake_cuda
