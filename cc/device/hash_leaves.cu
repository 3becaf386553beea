#include <cuda_runtime_api.h>

#include "cc/base/units.h"
#include "cc/device/hash_leaves.h"
#include "cc/device/kernel_works.h"

// SHA-256 is FIPS 180-4's, CRC-32 that of zlib (reflected polynomial 0xEDB88320). A leaf's rounds follow each other, so
// a thread takes about 2 ms for one however few there are, and what counts is how many threads there are. A warp of its
// own computes the CRCs, which would make it 2.4 ms otherwise (H200).
namespace coldsnap {
// Not an anonymous namespace: nvcc names that after the folder in which it runs, so each would make another wheel.
inline namespace hash_leaves {

constexpr unsigned kLeaves = 32;  // of a block, a warp's: a few hundred leaves spread over all processors
constexpr uint32_t kBlockBytes = 64;
constexpr int kWords = 16;
constexpr int kSlices = 8;  // bytes of a CRC that one step takes, each by a table of its own

__constant__ uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// 64 bytes of a leaf, as little-endian words.
struct Block {
  uint32_t words[kWords];
};

__device__ uint32_t RotateRight(uint32_t x, int by) { return __funnelshift_r(x, x, by); }
__device__ uint32_t SwapBytes(uint32_t x) { return __byte_perm(x, 0, 0x0123); }

struct Sha256State {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

  __device__ void Add(const Block& block) {
    uint32_t w[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = SwapBytes(block.words[i]);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], k = h[7];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      if (i >= kWords) {
        const uint32_t x = w[(i + 1) % kWords];
        const uint32_t y = w[(i + 14) % kWords];
        w[i % kWords] += (RotateRight(x, 7) ^ RotateRight(x, 18) ^ (x >> 3)) + w[(i + 9) % kWords] +
                         (RotateRight(y, 17) ^ RotateRight(y, 19) ^ (y >> 10));
      }
      const uint32_t t1 = k + (RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25)) + ((e & f) ^ (~e & g)) +
                          kRounds[i] + w[i % kWords];
      const uint32_t t2 = (RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      k = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += k;
  }
};

// tables[s][b]: byte b followed by s zero bytes.
using CrcTables = uint32_t[kSlices][256];

__device__ void FillTables(CrcTables& tables) {
  for (uint32_t b = threadIdx.x; b < 256; b += blockDim.x) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xEDB88320U : crc >> 1;
    tables[0][b] = crc;
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < 256; b += blockDim.x) {
    for (int s = 1; s < kSlices; ++s) tables[s][b] = (tables[s - 1][b] >> 8) ^ tables[0][tables[s - 1][b] & 0xFF];
  }
  __syncthreads();
}

__device__ uint32_t FourBytes(const CrcTables& tables, int slice, uint32_t word) {
  return tables[slice + 3][word & 0xFF] ^ tables[slice + 2][(word >> 8) & 0xFF] ^
         tables[slice + 1][(word >> 16) & 0xFF] ^ tables[slice][word >> 24];
}

__device__ uint32_t AddToCrc(const CrcTables& tables, uint32_t crc, const Block& block) {
#pragma unroll
  for (int i = 0; i < kWords; i += 2) {
    crc = FourBytes(tables, 4, block.words[i] ^ crc) ^ FourBytes(tables, 0, block.words[i + 1]);
  }
  return crc;
}

__device__ Block LoadAligned(const uint8_t* from) {
  Block block;
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from) + i / 4);
    block.words[i] = words.x, block.words[i + 1] = words.y, block.words[i + 2] = words.z, block.words[i + 3] = words.w;
  }
  return block;
}

// Byte by byte: of memory at any address, or the last bytes of a leaf with SHA-256's closing bit and length behind
// them. `block` is the block's number; `nbytes` are the leaf's.
__device__ Block LoadBytes(const uint8_t* leaf, uint32_t nbytes, uint32_t block) {
  Block out;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t at = block * kBlockBytes + i * 4 + k;
      const uint32_t byte = at < nbytes ? leaf[at] : at == nbytes ? 0x80 : 0;
      word |= byte << (8 * k);
    }
    out.words[i] = word;
  }
  const bool is_last = (block + 1) * kBlockBytes >= nbytes + 9;
  if (is_last) out.words[kWords - 1] = SwapBytes(nbytes * 8);
  return out;
}

__device__ Block Load(const uint8_t* leaf, uint32_t nbytes, uint32_t block) {
  const bool aligned = reinterpret_cast<uint64_t>(leaf) % sizeof(uint4) == 0;
  if (aligned && (block + 1) * kBlockBytes <= nbytes) return LoadAligned(leaf + block * kBlockBytes);
  return LoadBytes(leaf, nbytes, block);
}

__device__ uint32_t CrcOf(const CrcTables& tables, const uint8_t* leaf, uint32_t nbytes) {
  const uint32_t whole = nbytes / kBlockBytes;
  uint32_t crc = 0xFFFFFFFFU;
  Block next = Load(leaf, nbytes, 0);
  for (uint32_t i = 0; i < whole; ++i) {
    const Block block = next;
    if (i + 1 < whole) next = Load(leaf, nbytes, i + 1);  // travels while this one is hashed
    crc = AddToCrc(tables, crc, block);
  }
  for (uint32_t i = whole * kBlockBytes; i < nbytes; ++i) crc = (crc >> 8) ^ tables[0][(crc ^ leaf[i]) & 0xFF];
  return ~crc;
}

__device__ void HashLeaf(const uint8_t* leaf, uint32_t nbytes, Sha256& out) {
  const uint32_t blocks = (nbytes + 8) / kBlockBytes + 1;
  Sha256State sha256;
  Block next = Load(leaf, nbytes, 0);
  for (uint32_t i = 0; i < blocks; ++i) {
    const Block block = next;
    if (i + 1 < blocks) next = Load(leaf, nbytes, i + 1);
    sha256.Add(block);
  }
  auto* const digest = reinterpret_cast<uint32_t*>(&out);
  for (int i = 0; i < 8; ++i) digest[i] = SwapBytes(sha256.h[i]);
}

__device__ const HashRange& RangeOfLeaf(const HashTable& table, uint32_t leaf) {
  uint32_t begin = 0;
  for (uint32_t end = table.count; end - begin > 1;) {
    const uint32_t middle = (begin + end) / 2;
    (table.ranges[middle].first_leaf <= leaf ? begin : end) = middle;
  }
  return table.ranges[begin];
}

// The first warp of a block computes CRCs, the second, where there is one, SHA-256 of the same leaves.
__global__ void HashLeaves(const __grid_constant__ HashTable table) {
  __shared__ CrcTables tables;
  FillTables(tables);
  const uint32_t leaf = blockIdx.x * kLeaves + threadIdx.x % kLeaves;
  if (leaf >= table.leaves) return;
  const HashRange& range = RangeOfLeaf(table, leaf);
  const uint32_t offset = (leaf - range.first_leaf) * static_cast<uint32_t>(kLeafBytes);
  const uint32_t rest = range.nbytes - offset;
  const uint32_t nbytes = rest < kLeafBytes ? rest : static_cast<uint32_t>(kLeafBytes);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(range.address) + offset;
  if (threadIdx.x < kLeaves) {
    table.out[leaf].crc32 = CrcOf(tables, bytes, nbytes);
  } else {
    HashLeaf(bytes, nbytes, table.out[leaf].sha256);
  }
}

}  // namespace hash_leaves
}  // namespace coldsnap

extern "C" {

bool coldsnap_hash_leaves_works() { return coldsnap::KernelWorks(coldsnap::HashLeaves); }

cudaError_t coldsnap_hash_leaves(const coldsnap::HashTable* table, bool sha256, cudaStream_t stream) {
  const unsigned blocks = (table->leaves + coldsnap::kLeaves - 1) / coldsnap::kLeaves;
  if (blocks == 0) return cudaSuccess;
  coldsnap::HashLeaves<<<blocks, (sha256 ? 2 : 1) * coldsnap::kLeaves, 0, stream>>>(*table);
  return cudaGetLastError();
}

}  // extern "C"
