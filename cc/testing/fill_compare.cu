#include <cuda_runtime_api.h>

#include "cc/testing/fill_compare.h"
#include "cc/testing/pattern.h"

namespace coldsnap {
// Not an anonymous namespace: nvcc names that after the folder in which it runs, so each would make another wheel.
inline namespace fill_compare {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;

// Byte i of the pattern. The word is made anew for each byte: this is for tests, and it keeps any start and length
// easy.
__device__ unsigned char PatternByte(uint64_t seed, uint64_t index) {
  return static_cast<unsigned char>(PatternWord(seed, index / 8) >> (8 * (index % 8)));
}

__global__ void Fill(unsigned char* bytes, uint64_t nbytes, uint64_t seed) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < nbytes; i += stride) {
    bytes[i] = PatternByte(seed, i);
  }
}

__global__ void Compare(const unsigned char* bytes, uint64_t nbytes, uint64_t seed, unsigned long long* differences) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  unsigned long long mine = 0;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < nbytes; i += stride) {
    if (bytes[i] != PatternByte(seed, i)) ++mine;
  }
  if (mine != 0) atomicAdd(differences, mine);
}

Status FromCuda(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return Status::Ok();
  return Status(Code::kCuda, StrCat(doing, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"))
      .WithNative(Domain::kCuda, static_cast<int>(error));
}

unsigned char* Pointer(const DeviceRange& range) { return reinterpret_cast<unsigned char*>(range.address); }

// A kernel runs on the thread's current device, which need not be the one that is tested.
class CurrentDevice {
 public:
  explicit CurrentDevice(const DeviceRange& range) : status_(Select(range)) {}
  ~CurrentDevice() { static_cast<void>(cudaSetDevice(before_)); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  Status Select(const DeviceRange& range) {
    RETURN_IF_ERROR(FromCuda(cudaGetDevice(&before_), "ask for the current device"));
    cudaPointerAttributes attributes{};
    RETURN_IF_ERROR(FromCuda(cudaPointerGetAttributes(&attributes, Pointer(range)), "ask where memory is"));
    return FromCuda(cudaSetDevice(attributes.device), "select the memory's device");
  }

  int before_ = 0;
  Status status_;
};

Result<uint64_t> CountInto(unsigned long long* differences, const DeviceRange& range, uint64_t seed) {
  RETURN_IF_ERROR(FromCuda(cudaMemset(differences, 0, sizeof(*differences)), "clear the counter"));
  Compare<<<kBlocks, kThreads>>>(Pointer(range), range.nbytes, seed, differences);
  RETURN_IF_ERROR(FromCuda(cudaGetLastError(), "start the compare kernel"));
  unsigned long long count = 0;
  RETURN_IF_ERROR(
      FromCuda(cudaMemcpy(&count, differences, sizeof(count), cudaMemcpyDeviceToHost), "run the compare kernel"));
  return static_cast<uint64_t>(count);
}

}  // namespace fill_compare

Status FillPatternOnDevice(const DeviceRange& range, uint64_t seed) {
  const CurrentDevice device(range);
  RETURN_IF_ERROR(device.status());
  Fill<<<kBlocks, kThreads>>>(Pointer(range), range.nbytes, seed);
  RETURN_IF_ERROR(FromCuda(cudaGetLastError(), "start the fill kernel"));
  return FromCuda(cudaDeviceSynchronize(), "run the fill kernel");
}

Result<uint64_t> CountDifferencesOnDevice(const DeviceRange& range, uint64_t seed) {
  const CurrentDevice device(range);
  RETURN_IF_ERROR(device.status());
  unsigned long long* differences = nullptr;
  RETURN_IF_ERROR(FromCuda(cudaMalloc(&differences, sizeof(*differences)), "allocate a counter"));
  const Result<uint64_t> count = CountInto(differences, range, seed);
  static_cast<void>(cudaFree(differences));
  return count;
}

}  // namespace coldsnap
