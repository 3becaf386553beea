// CRC-32 as zlib computes it (polynomial 0xEDB88320, reflected), by ISA-L's vector code, and its exact combination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coldsnap {

// Continues `crc` (0 to begin) over `bytes`.
uint32_t Crc32(uint32_t crc, std::span<const std::byte> bytes);

// The CRC of A followed by B, from the CRC of A, the CRC of B and the length of B in bytes.
uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_nbytes);

}  // namespace coldsnap
