// Lower-case hex, the one way that digests are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cc/base/types.h"

namespace coldsnap {

std::string ToHex(const Sha256& digest);  // 64 digits
std::string ToHex(uint32_t crc32);        // 8 digits
// Nothing unless `text` is exactly 64 (8) lower-case hex digits.
std::optional<Sha256> Sha256FromHex(std::string_view text);
std::optional<uint32_t> Crc32FromHex(std::string_view text);

}  // namespace coldsnap
