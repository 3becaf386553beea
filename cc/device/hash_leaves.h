// Digests of 64 KiB leaves in the device's memory by one kernel: a thread hashes a leaf.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cc/base/types.h"
#include "cc/device/gpu.h"

namespace coldsnap {

struct HashRange {
  uint64_t address = 0;
  uint32_t nbytes = 0;
  uint32_t first_leaf = 0;  // running number over all ranges
};

// Travels as the kernel's argument, so nobody has to keep it: 8 KiB, of 32 that an argument may have.
struct HashTable {
  LeafDigest* out = nullptr;  // pinned
  uint32_t count = 0;
  uint32_t leaves = 0;
  HashRange ranges[kMaxHashRanges];  // NOLINT(modernize-avoid-c-arrays): device code has no std::array
};

}  // namespace coldsnap

extern "C" {
// Whether the current device has the kernel and can write pinned memory at its host address.
bool coldsnap_hash_leaves_works();
// Submits the work to the stream, which is the current device's: CRC-32, and SHA-256 too if asked for.
cudaError_t coldsnap_hash_leaves(const coldsnap::HashTable* table, bool sha256, cudaStream_t stream);
}
