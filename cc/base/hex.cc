#include "cc/base/hex.h"

#include <array>

namespace coldsnap {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

// A table: a manifest of 200,000 extents has 14 million digits.
constexpr std::array<int8_t, 256> kDigitOf = [] {
  std::array<int8_t, 256> table{};
  table.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) table[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return table;
}();

int DigitOf(char c) { return kDigitOf[static_cast<unsigned char>(c)]; }

}  // namespace

std::string ToHex(const Sha256& digest) {
  std::string out;
  out.reserve(2 * digest.size());
  for (const std::byte byte : digest) {
    out.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
    out.push_back(kDigits[std::to_integer<unsigned>(byte) & 15]);
  }
  return out;
}

std::string ToHex(uint32_t crc32) {
  std::string out(8, '0');
  for (size_t i = 0; i < 8; ++i) out[i] = kDigits[(crc32 >> (28 - 4 * i)) & 15];
  return out;
}

std::optional<Sha256> Sha256FromHex(std::string_view text) {
  Sha256 digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = DigitOf(text[2 * i]);
    const int low = DigitOf(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

std::optional<uint32_t> Crc32FromHex(std::string_view text) {
  if (text.size() != 8) return std::nullopt;
  uint32_t value = 0;
  for (const char c : text) {
    const int digit = DigitOf(c);
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

}  // namespace coldsnap
