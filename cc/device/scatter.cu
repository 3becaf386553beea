#include <cuda_runtime_api.h>

#include "cc/device/kernel_works.h"
#include "cc/device/scatter.h"

namespace coldsnap {
// Not an anonymous namespace: nvcc names that after the folder in which it runs, so each would make another wheel.
inline namespace scatter {

// Enough to fill a PCIe 5.0 x16 link (47 GB/s of pieces of 16 KiB from 16 blocks on an H200, 48 from 32), few enough to
// leave the rest of the device to others.
constexpr unsigned kBlocks = 32;
constexpr unsigned kThreads = 256;

template <typename Word>
__device__ void CopyWords(std::byte* to, const std::byte* from, uint32_t nbytes) {
  auto* const out = reinterpret_cast<Word*>(to);
  const auto* const in = reinterpret_cast<const Word*>(from);
  for (uint32_t i = threadIdx.x; i < nbytes / sizeof(Word); i += blockDim.x) out[i] = in[i];
}

// A block copies a piece: whole words of 16 bytes where both ends allow it, and what is left byte by byte.
__device__ void CopyPiece(std::byte* to, const std::byte* from, uint32_t nbytes) {
  const bool aligned = ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % sizeof(uint4)) == 0;
  const uint32_t words = aligned ? nbytes / sizeof(uint4) * sizeof(uint4) : 0;
  CopyWords<uint4>(to, from, words);
  CopyWords<std::byte>(to + words, from + words, nbytes - words);
}

__global__ void Scatter(const __grid_constant__ ScatterTable table) {
  for (uint32_t i = blockIdx.x; i < table.count; i += gridDim.x) {
    const ScatterPiece& piece = table.pieces[i];
    CopyPiece(reinterpret_cast<std::byte*>(piece.to), table.base + piece.from, piece.nbytes);
  }
}

}  // namespace scatter
}  // namespace coldsnap

extern "C" {

bool coldsnap_scatter_works() { return coldsnap::KernelWorks(coldsnap::Scatter); }

cudaError_t coldsnap_scatter(const coldsnap::ScatterTable* table, cudaStream_t stream) {
  const unsigned blocks = table->count < coldsnap::kBlocks ? table->count : coldsnap::kBlocks;
  coldsnap::Scatter<<<blocks, coldsnap::kThreads, 0, stream>>>(*table);
  return cudaGetLastError();
}

}  // extern "C"
