// How fast copies between pinned memory and the device are: the ceiling that a warm restore is measured against.
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/device/gpu.h"

namespace coldsnap {

// Seconds for `nbytes` in copies of `chunk_bytes` on one lane, from a pinned buffer of one chunk to one of the same
// size on the device, or back. Pinning is not part of it. `nbytes` is rounded up to whole chunks.
Result<double> TimeCopies(Gpu& gpu, bool to_device, uint64_t nbytes, uint64_t chunk_bytes);

}  // namespace coldsnap
