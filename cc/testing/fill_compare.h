// The pattern of pattern.h on a CUDA device: made and compared where the bytes are, by a kernel of our own.
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

// Fills device memory with PatternBytes(range.nbytes, seed).
Status FillPatternOnDevice(const DeviceRange& range, uint64_t seed);

// How many bytes of device memory differ from PatternBytes(range.nbytes, seed).
Result<uint64_t> CountDifferencesOnDevice(const DeviceRange& range, uint64_t seed);

}  // namespace coldsnap
