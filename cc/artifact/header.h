// The blob's first bytes: the safetensors header, as a function of the tensors and the sizes of the extents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/artifact/limits.h"
#include "cc/artifact/placement.h"
#include "cc/artifact/tensor.h"
#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

// For each extent the index of the tensor whose name, type and shape its entry has, or kUnnamed.
// `tensors` are in name order and each has passed CheckRecord.
inline constexpr size_t kUnnamed = SIZE_MAX;
std::vector<size_t> NameExtents(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes);

// Length prefix, JSON and the spaces up to the start of the data: data_start bytes in all.
//
// Where the header would pass `limit_bytes` every group of small extents becomes one entry; where it still does, the
// answer is kRequestInvalid. Only tests use another limit than the format's.
Result<std::string> BuildHeader(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes,
                                const Placement& placement, uint64_t limit_bytes = kMaxHeaderBytes);

// The size of that header, and its SHA-256 provided that `data_start` is its size: the text, 30 MB for 200,000 tensors,
// never stands in memory as a whole.
struct HeaderDigest {
  uint64_t data_start = 0;
  Sha256 sha256{};
};
Result<HeaderDigest> DigestHeader(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes,
                                  const Placement& placement, uint64_t data_start);

}  // namespace coldsnap
