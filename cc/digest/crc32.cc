#include "cc/digest/crc32.h"

#include <array>

#include "isa-l/crc.h"

namespace coldsnap {
namespace {

// Polynomials over GF(2) modulo the CRC's own, bit-reversed like the CRC itself: bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0xEDB88320U;
constexpr uint32_t kOne = 0x80000000U;

constexpr uint32_t TimesX(uint32_t a) { return (a & 1U) != 0 ? (a >> 1) ^ kPolynomial : a >> 1; }

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

// kPowers[i] is x^(8 * 2^i): one zero byte appended 2^i times.
constexpr std::array<uint32_t, 64> kPowers = [] {
  std::array<uint32_t, 64> powers{};
  uint32_t power = kOne;
  for (int i = 0; i < 8; ++i) power = TimesX(power);
  for (uint32_t& entry : powers) {
    entry = power;
    power = Multiply(power, power);
  }
  return powers;
}();

}  // namespace

uint32_t Crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_nbytes) {
  // Appending n bytes multiplies the CRC's polynomial by x^(8n); the pre- and post-inversions cancel out.
  for (size_t i = 0; second_nbytes != 0; ++i, second_nbytes >>= 1) {
    if ((second_nbytes & 1) != 0) first = Multiply(kPowers[i], first);
  }
  return first ^ second;
}

}  // namespace coldsnap
