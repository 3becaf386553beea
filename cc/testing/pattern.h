// Bytes that a test can make again from a seed: never constant, never repeating with a ring's period.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace coldsnap {

#ifdef __CUDACC__
#define COLDSNAP_HOST_DEVICE __host__ __device__
#else
#define COLDSNAP_HOST_DEVICE
#endif

// splitmix64's finaliser over (seed, word index): byte i depends on i alone, so a kernel can make any part of it.
COLDSNAP_HOST_DEVICE constexpr uint64_t PatternWord(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

inline std::vector<std::byte> PatternBytes(size_t nbytes, uint64_t seed) {
  std::vector<std::byte> out(nbytes);
  for (size_t at = 0; at < nbytes; at += 8) {
    const uint64_t word = PatternWord(seed, at / 8);
    std::memcpy(out.data() + at, &word, nbytes - at < 8 ? nbytes - at : 8);
  }
  return out;
}

}  // namespace coldsnap
