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

}  // namespace coldsnap
