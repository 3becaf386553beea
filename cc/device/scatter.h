// Many small pieces of pinned memory to the device by one kernel, which reads them over PCIe itself: the copy engines
// take half a microsecond and more for each piece.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace coldsnap {

struct ScatterPiece {
  uint64_t to = 0;
  uint32_t from = 0;  // offset from the table's base
  uint32_t nbytes = 0;
};

// Travels as the kernel's argument, so nobody has to keep it: 16 KiB, of 32 that an argument may have.
struct ScatterTable {
  const std::byte* base = nullptr;  // pinned
  uint32_t count = 0;
  ScatterPiece pieces[1023];  // NOLINT(modernize-avoid-c-arrays): device code has no std::array
};

}  // namespace coldsnap

extern "C" {
// Whether the current device has the kernel and can read pinned memory at its host address.
bool coldsnap_scatter_works();
// Submits the copies to the stream.
cudaError_t coldsnap_scatter(const coldsnap::ScatterTable* table, cudaStream_t stream);
}
