// The small text files in which the kernel says what it is and allows (/proc, /sys), and how they are cut up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"

namespace coldsnap {

// The whole of a file that has no size of its own, links followed; at most 16 MiB.
Result<std::string> ReadPseudoFile(const std::string& path);

// What stands between any of the `separators`; nothing empty.
std::vector<std::string_view> Split(std::string_view text, std::string_view separators);

// A decimal number and nothing else.
std::optional<uint64_t> ParseCount(std::string_view text);

}  // namespace coldsnap
