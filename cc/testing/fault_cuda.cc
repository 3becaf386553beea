// Stand-ins for the CUDA runtime's functions that CudaGpu calls: a fault that is due, else the fake device while there
// is one (FakeCuda), else the runtime itself.
#include <cuda_runtime_api.h>

#include <optional>

#include "cc/testing/fake_cuda_calls.h"
#include "cc/testing/fault.h"

// The names and types are the linker's and CUDA's, not ours.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
namespace {

using coldsnap::CountCall;
using coldsnap::Fault;
using coldsnap::FaultKind;
using coldsnap::FaultPoint;
namespace fake = coldsnap::fake_cuda;

template <typename Fake, typename Real>
cudaError_t CudaOr(FaultPoint point, Fake fake_call, Real real_call) {
  const auto call = [&] { return fake::Active() ? fake_call() : real_call(); };
  const std::optional<Fault> fault = CountCall(point);
  if (!fault) return call();
  if (fault->kind == FaultKind::kErrorAfter) static_cast<void>(call());
  return fake::Fail(static_cast<cudaError_t>(fault->error));
}

// The core gets this in place of the driver's function, which no linker sees.
using AddressRangeFunction = int (*)(unsigned long long* base, size_t* nbytes, unsigned long long address);
AddressRangeFunction real_address_range = nullptr;
int CountedAddressRange(unsigned long long* base, size_t* nbytes, unsigned long long address) {
  if (const std::optional<Fault> fault = CountCall(FaultPoint::kCuMemGetAddressRange)) return fault->error;
  return real_address_range(base, nbytes, address);
}

}  // namespace

extern "C" {

cudaError_t __real_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                    unsigned long long flags, cudaDriverEntryPointQueryResult* found);
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                    unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  void* real = reinterpret_cast<void*>(&fake::GetAddressRange);
  const cudaError_t error = CudaOr(
      FaultPoint::kCudaGetDriverEntryPoint, [] { return cudaSuccess; },
      [&] { return __real_cudaGetDriverEntryPointByVersion(symbol, &real, version, flags, found); });
  if (error != cudaSuccess) return error;
  real_address_range = reinterpret_cast<AddressRangeFunction>(real);
  *function = reinterpret_cast<void*>(&CountedAddressRange);
  return cudaSuccess;
}

// Asking for the last error is no fault point: it can't fail.
cudaError_t __real_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t injected = fake::TakeLastError();
  if (fake::Active()) return injected;
  const cudaError_t real = __real_cudaGetLastError();
  return injected != cudaSuccess ? injected : real;
}

// Declares the real function and defines its stand-in: point, name, (parameters), the fake's call, (arguments).
#define COLDSNAP_STAND_IN(point, name, parameters, fake_call, arguments)                                        \
  cudaError_t __real_##name parameters;                                                                         \
  cudaError_t __wrap_##name parameters {                                                                        \
    return CudaOr(FaultPoint::point, [&] { return fake::fake_call; }, [&] { return __real_##name arguments; }); \
  }

COLDSNAP_STAND_IN(kCudaGetDeviceCount, cudaGetDeviceCount, (int* count), GetDeviceCount(count), (count))
COLDSNAP_STAND_IN(kCudaGetDeviceProperties, cudaGetDeviceProperties, (cudaDeviceProp * properties, int device),
                  GetDeviceProperties(properties, device), (properties, device))
COLDSNAP_STAND_IN(kCudaMemGetInfo, cudaMemGetInfo, (size_t* free_bytes, size_t* total_bytes),
                  MemGetInfo(free_bytes, total_bytes), (free_bytes, total_bytes))
COLDSNAP_STAND_IN(kCudaGetDevice, cudaGetDevice, (int* device), GetDevice(device), (device))
COLDSNAP_STAND_IN(kCudaSetDevice, cudaSetDevice, (int device), SetDevice(device), (device))
COLDSNAP_STAND_IN(kCudaPointerGetAttributes, cudaPointerGetAttributes,
                  (cudaPointerAttributes * attributes, const void* address), PointerGetAttributes(attributes, address),
                  (attributes, address))
COLDSNAP_STAND_IN(kCudaMalloc, cudaMalloc, (void** address, size_t nbytes), Malloc(address, nbytes), (address, nbytes))
COLDSNAP_STAND_IN(kCudaFree, cudaFree, (void* address), Free(address), (address))
COLDSNAP_STAND_IN(kCudaHostRegister, cudaHostRegister, (void* address, size_t nbytes, unsigned flags),
                  HostRegister(address, nbytes), (address, nbytes, flags))
COLDSNAP_STAND_IN(kCudaHostUnregister, cudaHostUnregister, (void* address), HostUnregister(address), (address))
COLDSNAP_STAND_IN(kCudaStreamCreate, cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags),
                  StreamCreate(stream), (stream, flags))
COLDSNAP_STAND_IN(kCudaStreamDestroy, cudaStreamDestroy, (cudaStream_t stream), StreamDestroy(stream), (stream))
COLDSNAP_STAND_IN(kCudaStreamSynchronize, cudaStreamSynchronize, (cudaStream_t stream), StreamSynchronize(stream),
                  (stream))
COLDSNAP_STAND_IN(kCudaEventCreate, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), EventCreate(event),
                  (event, flags))
COLDSNAP_STAND_IN(kCudaEventDestroy, cudaEventDestroy, (cudaEvent_t event), EventDestroy(event), (event))
COLDSNAP_STAND_IN(kCudaEventRecord, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
                  EventRecord(event, stream), (event, stream))
COLDSNAP_STAND_IN(kCudaEventQuery, cudaEventQuery, (cudaEvent_t event), EventQuery(event), (event))
COLDSNAP_STAND_IN(kCudaEventElapsedTime, cudaEventElapsedTime,
                  (float* milliseconds, cudaEvent_t start, cudaEvent_t end), EventElapsedTime(milliseconds, start, end),
                  (milliseconds, start, end))
COLDSNAP_STAND_IN(kCudaMemcpyAsync, cudaMemcpyAsync,
                  (void* to, const void* from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t stream),
                  MemcpyAsync(to, from, nbytes, stream), (to, from, nbytes, kind, stream))
COLDSNAP_STAND_IN(kCudaMemcpyBatchAsync, cudaMemcpyBatchAsync,
                  (void* const* to, const void* const* from, const size_t* nbytes, size_t count,
                   cudaMemcpyAttributes* attributes, size_t* firsts, size_t kinds, cudaStream_t stream),
                  MemcpyBatchAsync(to, from, nbytes, count, stream),
                  (to, from, nbytes, count, attributes, firsts, kinds, stream))
COLDSNAP_STAND_IN(kScatter, coldsnap_scatter, (const coldsnap::ScatterTable* table, cudaStream_t stream),
                  Scatter(*table, stream), (table, stream))
bool __real_coldsnap_scatter_works();
bool __wrap_coldsnap_scatter_works() {
  if (CountCall(FaultPoint::kScatterWorks)) return false;
  return fake::Active() || __real_coldsnap_scatter_works();
}
COLDSNAP_STAND_IN(kHashLeaves, coldsnap_hash_leaves,
                  (const coldsnap::HashTable* table, bool sha256, cudaStream_t stream),
                  HashLeaves(*table, sha256, stream), (table, sha256, stream))
bool __real_coldsnap_hash_leaves_works();
bool __wrap_coldsnap_hash_leaves_works() {
  if (CountCall(FaultPoint::kHashLeavesWorks)) return false;
  return fake::Active() || __real_coldsnap_hash_leaves_works();
}
COLDSNAP_STAND_IN(kCudaMemsetAsync, cudaMemsetAsync, (void* to, int value, size_t nbytes, cudaStream_t stream),
                  MemsetAsync(to, value, nbytes, stream), (to, value, nbytes, stream))

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
