// The nouns that stages pass to each other. Everything here is plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/units.h"

namespace coldsnap {

using Sha256 = std::array<std::byte, 32>;

// One contiguous byte range of the blob that belongs to one contiguous device range.
struct Extent {
  uint64_t file_offset = 0;  // absolute, in the blob
  uint64_t nbytes = 0;       // without padding, never 0
  uint32_t crc32 = 0;        // zlib's, over the extent
  Sha256 sha256t{};          // root of the tree sha256-tree-65536
};

// Where an extent's bytes go. `address` is a device pointer for a CUDA device, a host pointer otherwise.
struct DeviceRange {
  uint64_t address = 0;
  uint64_t nbytes = 0;
};

// The path that bytes took. Names are stable: they appear in receipts.
enum class Route : uint8_t { kBuffered, kDirect, kGds };
inline constexpr std::array kRoutes = {Route::kBuffered, Route::kDirect, Route::kGds};
inline std::string_view RouteName(Route route) {
  constexpr std::array<std::string_view, kRoutes.size()> kNames = {"buffered", "direct", "gds"};
  return kNames[static_cast<size_t>(route)];
}

// Why something was decided. The codes are stable, the details are for people.
struct Reason {
  std::string code;
  std::string detail;
};

// Which digests a restore compares before it publishes. kNone is for whoever knows that this very file has passed a
// full verification (docs/architecture.md, section 8).
enum class Verify : uint8_t { kCrc32, kCrc32Sha256, kNone };

// Where they are computed: from the staged bytes, over the final memory after the copy, or both. kAuto lets us choose.
enum class Place : uint8_t { kAuto, kHost, kDevice, kBoth };

// Of one leaf. Written by the device too, so its layout is fixed.
struct LeafDigest {
  Sha256 sha256{};
  uint32_t crc32 = 0;
};
static_assert(sizeof(LeafDigest) == 36);

}  // namespace coldsnap
